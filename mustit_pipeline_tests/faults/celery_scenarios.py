"""What can be done to the hosts of a pipeline that runs on several of them."""

import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from functools import partial

from sqlalchemy import URL, Engine, NullPool, create_engine, make_url, text

from mustit_pipeline.settings import Settings
from mustit_pipeline_tests.faults.celery_hosts import DAEMON, RUN_WORKER, TASK_WORKER, Host, host, shared_settings
from mustit_pipeline_tests.faults.engine_scenarios import kill_redis
from mustit_pipeline_tests.faults.invariants import check_all, check_convergence
from mustit_pipeline_tests.faults.scenarios import LONG, Numbers, Size
from mustit_pipeline_tests.faults.world import PATIENCE_SECONDS, World, wait_until
from mustit_pipeline_tests.integration.crawls import register

COMPLETED = "SELECT count(*) FROM crawling_schedule_executions WHERE status = 'COMPLETED' AND failed_tasks = 0"
# So long may a run that lost its process keep its seller waiting.
STUCK_SECONDS = 120.0
UNFINISHED = "status NOT IN ('SUCCESS', 'FAILURE', 'CANCELED')"


def run_worker_killed_on_its_host(world: World, size: Size) -> Numbers:
    """Two hosts do the runs of one broker; kill -9 of one delays its crawls and loses nothing."""
    sellers = [f"셀러 {number}" for number in range(60 if size == LONG else 10)]
    kills = 3 if size == LONG else 1
    products = 20 if size == LONG else 3
    settings = shared_settings(
        world,
        run_launcher="celery",
        crawls_at_once=6,
        runs_at_once=8,
        # Where a killed worker's only run is known to have started, nothing waits for Dagster's own time-outs.
        run_worker_slots=4 if size == LONG else 1,
        run_grace_seconds=60 if size == LONG else 2,
    )
    for seller_id in sellers:
        world.market.add_seller(seller_id, products)
    world.market.settings(latencyMs=100)
    register(world.database, *sellers)
    noticed: list[float] = []
    with dagster_runs(settings) as runs, ExitStack() as hosts:
        hosts.enter_context(host(world, settings, "control", *DAEMON))
        stays = hosts.enter_context(host(world, settings, "worker-stays", *RUN_WORKER))
        if size == LONG:
            hosts.enter_context(host(world, settings, "tasks", *TASK_WORKER))
        for number in range(kills):
            with host(world, settings, f"worker-{number}", *RUN_WORKER) as worker:
                _wait(partial(runs.started_by, worker), "the worker has begun a run")
                worker.kill()
                killed = runs.started_by(worker)
            if not killed:
                raise AssertionError("the worker was killed with nothing in hand")
            began = time.monotonic()
            _wait(partial(runs.all_ended, killed), "the killed runs are noticed")
            noticed.append(time.monotonic() - began)
        if size == LONG:
            kill_redis(world.settings)
        _wait(lambda: world.number(COMPLETED) >= len(sellers), "every seller is crawled")
        _wait(lambda: runs.number(f"SELECT count(*) FROM runs WHERE {UNFINISHED}") == 0, "no run is left over")
        if not stays.tasks_done:
            raise AssertionError("the second worker has done nothing")
    if max(noticed) > STUCK_SECONDS:
        raise AssertionError(f"a killed run was stuck for {max(noticed):.0f} s")
    effects = check_all(world, sellers[0], settings)
    for seller_id in sellers:
        check_convergence(world, seller_id)
    return {
        "hosts": 3,
        "sellers": len(sellers),
        "kills": kills,
        "noticed after s": round(max(noticed)),
        "effects": effects,
    }


# Hosts take seconds for what they do: whoever looks all the time only slows them down.
_wait = partial(wait_until, every=0.2, patience=5 * PATIENCE_SECONDS)


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


CELERY_SCENARIOS: tuple[Callable[[World, Size], Numbers], ...] = (run_worker_killed_on_its_host,)
