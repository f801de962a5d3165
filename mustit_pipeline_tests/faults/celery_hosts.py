"""Hosts: groups of processes with a home of their own each, that share nothing but PostgreSQL and Redis."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
from sqlalchemy import URL, Engine, NullPool, create_engine, make_url, text

from mustit_pipeline import embedded
from mustit_pipeline.cli.dagster_home import WORKSPACE
from mustit_pipeline.cli.runtime import dagster_environment
from mustit_pipeline.settings import Settings
from mustit_pipeline_tests.conftest import free_port
from mustit_pipeline_tests.faults.children import environment_of
from mustit_pipeline_tests.faults.world import World

COMMANDS = Path(sys.executable).parent
COMMAND_SECONDS = 120.0
DAEMON = ("dagster-daemon", "run", "-w", str(WORKSPACE))
UP = ("mustit", "up")
RUN_WORKER = ("mustit", "run-worker")
TASK_WORKER = ("mustit", "worker")
UNFINISHED = "status NOT IN ('SUCCESS', 'FAILURE', 'CANCELED')"
# What Celery logs of a run that a worker takes, and of one that it is done with.
TAKEN = re.compile(r"Task execute_job\[([0-9a-f-]{36})\] received")
DONE = re.compile(r"Task execute_job\[([0-9a-f-]{36})\] succeeded")


@dataclass(frozen=True)
class Host:
    """One of them; its processes live and die together."""

    process: subprocess.Popen[bytes]
    home: Path
    log: Path

    @property
    def said(self) -> str:
        """All that it has written so far."""
        return self.log.read_text(errors="replace")

    @property
    def tasks_in_hand(self) -> list[str]:
        """Celery's names of the runs that a run worker has taken and not ended."""
        said = self.said
        return sorted(set(TAKEN.findall(said)) - set(DONE.findall(said)))

    @property
    def tasks_done(self) -> int:
        """How many runs a run worker has ended."""
        return len(DONE.findall(self.said))

    def kill(self) -> None:
        """As if the plug had been pulled."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        # Code servers and runs have sessions of their own, and outlive the process that started them.
        for other in psutil.process_iter():
            with suppress(psutil.Error):
                if other.cwd() == str(self.home):
                    other.kill()


@contextmanager
def host(world: World, settings: Settings, name: str, *command: str) -> Generator[Host]:
    """A host that runs one command; it is off at the end, whatever happened to it."""
    home = world.settings.home / "hosts" / name
    home.mkdir(parents=True, exist_ok=True)
    own = settings.model_copy(update={"home": home})
    outside = {key: value for key, value in os.environ.items() if not key.startswith(("MUSTIT_", "DAGSTER_"))}
    environment = {**outside, **environment_of(own), **dagster_environment(own)}
    log = world.logs / f"{name}.log"
    with log.open("ab") as file:
        process = subprocess.Popen(
            [str(COMMANDS / command[0]), *command[1:]],
            env=environment,
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    started = Host(process, home, log)
    try:
        yield started
    finally:
        started.kill()


def run_on_host(world: World, settings: Settings, name: str, *command: str) -> None:
    """Run a command there to its end."""
    with host(world, settings, name, *command) as started:
        if started.process.wait(COMMAND_SECONDS) != 0:
            raise AssertionError(f"{' '.join(command)} failed: {started.said[-1000:]}")


def shared_settings(world: World, **changed: object) -> Settings:
    """What every host is told: where the one PostgreSQL and the one Redis are."""
    url = make_url(embedded.attach(world.settings.home).dagster_database_url).set(drivername="postgresql")
    return world.with_settings(
        dagster_database_url=url.render_as_string(hide_password=False), dagster_port=free_port(), **changed
    )


def terminate(settings: Settings, run_id: str) -> None:
    """What the UI's button does."""
    query = f'mutation {{ terminateRun(runId: "{run_id}") {{ __typename }} }}'
    url = f"http://127.0.0.1:{settings.dagster_port}/graphql"
    answer = httpx.post(url, json={"query": query}, timeout=60, trust_env=False).json()
    if answer["data"]["terminateRun"]["__typename"] != "TerminateRunSuccess":
        raise AssertionError(f"the run cannot be terminated: {answer}")


class DagsterRuns:
    """What Dagster's own database says of the runs."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def number(self, query: str, **values: object) -> int:
        """One number from it."""
        with self._engine.connect() as connection:
            return connection.execute(text(query), values).scalar_one()

    def started_by(self, worker: Host) -> list[str]:
        """The runs that are going on in this worker's hands, once all that it has taken have started."""
        tasks = worker.tasks_in_hand
        if not tasks:
            return []
        query = text("""
            SELECT r.run_id, r.status FROM runs r JOIN run_tags t USING (run_id)
            WHERE t.key = 'dagster-celery/task_id' AND t.value = ANY(:tasks)
        """)
        with self._engine.connect() as connection:
            found = list(connection.execute(query, {"tasks": tasks}))
        if any(row.status == "STARTING" for row in found):
            return []
        return [row.run_id for row in found if row.status == "STARTED"]

    def all_ended(self, run_ids: list[str]) -> bool:
        """Whether none of these waits or works any more."""
        query = f"SELECT count(*) FROM runs WHERE run_id = ANY(:run_ids) AND {UNFINISHED}"
        return self.number(query, run_ids=run_ids) == 0


@contextmanager
def dagster_runs(settings: Settings) -> Generator[DagsterRuns]:
    """Eyes on Dagster's database."""
    url: URL = make_url(settings.dagster_database_url or "").set(drivername="postgresql+psycopg")
    engine = create_engine(url, poolclass=NullPool)
    try:
        yield DagsterRuns(engine)
    finally:
        engine.dispose()
