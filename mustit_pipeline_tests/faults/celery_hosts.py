"""Hosts: groups of processes with a home of their own each, that share nothing but PostgreSQL and Redis."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import make_url

from mustit_pipeline import embedded
from mustit_pipeline.cli.dagster_home import ROOT
from mustit_pipeline.cli.runtime import dagster_environment
from mustit_pipeline.settings import Settings
from mustit_pipeline_tests.faults.children import environment_of
from mustit_pipeline_tests.faults.world import World

COMMANDS = Path(sys.executable).parent
DAEMON = ("dagster-daemon", "run", "-w", str(ROOT / "workspace.yaml"))
UP = ("mustit", "up")
RUN_WORKER = ("mustit", "run-worker")
TASK_WORKER = ("mustit", "worker")
# What Celery logs of a run that a worker takes, and of one that it is done with.
TAKEN = re.compile(r"Task execute_job\[([0-9a-f-]{36})\] received")
DONE = re.compile(r"Task execute_job\[([0-9a-f-]{36})\] succeeded")


@dataclass(frozen=True)
class Host:
    """One of them; its processes live and die together."""

    process: subprocess.Popen[bytes]
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
        """As if somebody had pulled the plug."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


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
    started = Host(process, log)
    try:
        yield started
    finally:
        started.kill()


def shared_settings(world: World, **changed: object) -> Settings:
    """What every host is told: where the one PostgreSQL and the one Redis are."""
    url = make_url(embedded.attach(world.settings.home).dagster_database_url).set(drivername="postgresql")
    return world.with_settings(
        dagster_database_url=url.render_as_string(hide_password=False), dagster_port=free_port(), **changed
    )


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
