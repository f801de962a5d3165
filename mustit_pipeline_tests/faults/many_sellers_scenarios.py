"""Many sellers due at once, and everything that works on them killed in turn."""

import os
import random
import signal
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from functools import partial
from typing import Literal

import psutil
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from mustit_pipeline import embedded
from mustit_pipeline.settings import Settings
from mustit_pipeline_tests.faults.celery_hosts import (
    RUN_WORKER,
    UNFINISHED,
    UP,
    DagsterRuns,
    Host,
    dagster_runs,
    host,
    run_on_host,
    shared_settings,
)
from mustit_pipeline_tests.faults.celery_scenarios import COMPLETED, STUCK_SECONDS, wait_for_hosts
from mustit_pipeline_tests.faults.invariants import check_all, check_convergence
from mustit_pipeline_tests.faults.many_sellers_watch import Watch, watching
from mustit_pipeline_tests.faults.scenarios import LONG, Numbers, Size
from mustit_pipeline_tests.faults.world import World

Launcher = Literal["process", "celery"]
PRODUCTS = 3
LONGEST_ANSWER_SECONDS = 10.0
# Daemons tell that they live every half minute; on two busy cores they come to it late.
LONGEST_SILENCE_SECONDS = 90.0
MAKE_DUE = text("""
    UPDATE crawling_schedules c SET next_due_at = now() - make_interval(secs => coalesce(d.overdue, -86400))
    FROM (SELECT seller_id, overdue FROM crawling_schedules
          LEFT JOIN unnest(CAST(:sellers AS text[]), CAST(:overdue AS float[])) AS due(seller_id, overdue)
          USING (seller_id)) AS d
    WHERE d.seller_id = c.seller_id
""")
OPENED = text("SELECT seller_id, created_at, ended_at FROM crawling_schedule_executions ORDER BY created_at")
LIFETIMES = """
    SELECT ceil(max(coalesce(end_time, extract(epoch FROM update_timestamp)) - extract(epoch FROM create_timestamp)))
    FROM runs
"""


def many_sellers_in_processes(world: World, size: Size) -> Numbers:
    """A thousand sellers, two hundred due at once: oldest first, lane by lane, UI and daemon answer all the time."""
    return _crawl_all(world, size, "process")


def many_sellers_in_warm_workers(world: World, size: Size) -> Numbers:
    """The same with runs in warm workers on more hosts."""
    return _crawl_all(world, size, "celery")


def _crawl_all(world: World, size: Size, launcher: Launcher) -> Numbers:
    registered, due, at_once = (1000, 200, 12) if size == LONG else (20, 3, 2)
    with (
        many_sellers(
            world, registered, due, launcher, crawls_at_once=at_once, workers=2 if size == LONG else 1
        ) as crowd,
        watching(crowd.runs, crowd.settings) as watch,
    ):
        wait_for_hosts(crowd.all_crawled, "every due seller is crawled")
    _expect_oldest_first(crowd.opened(), crowd.sellers)
    expect_calm(watch, at_once)
    effects = _expect_nothing_lost(world, crowd)
    return {
        "registered": registered,
        "registered in s": round(crowd.registered_in),
        "due": due,
        "sellers an hour": crowd.sellers_an_hour(),
        "most crawls at once": watch.crawls,
        "slowest answer ms": round(watch.slowest * 1000),
        "longest silence s": round(watch.silence),
        "effects": effects,
    }


def everything_killed_in_turn(world: World, size: Size) -> Numbers:
    """Daemon, run worker, code server and PostgreSQL are killed while sellers are crawled: it goes on by itself."""
    registered, due, at_once = (1000, 200, 12) if size == LONG else (20, 5, 2)
    # Where a killed worker's only run is known to have started, nothing waits for Dagster's own time-outs.
    short = {} if size == LONG else {"run_worker_slots": 1, "run_grace_seconds": 2}
    killed: list[str] = []
    with many_sellers(world, registered, due, "celery", crawls_at_once=at_once, **short) as crowd:
        kills: Sequence[tuple[str, Callable[[], None]]] = (
            ("daemon", partial(crowd.kill_child, "dagster-daemon")),
            ("run worker", crowd.kill_worker),
            ("code server", partial(crowd.kill_child, "api grpc")),
            ("PostgreSQL", partial(_kill_postgres, world)),
        )
        for number, (name, kill) in enumerate(kills):
            wait_for_hosts(partial(crowd.crawled_at_least, max(1, due * (number + 1) // 8)), "the crawls go on")
            kill()
            killed.append(name)
        wait_for_hosts(crowd.all_crawled, "every due seller is crawled")
        wait_for_hosts(
            lambda: crowd.runs.number(f"SELECT count(*) FROM runs WHERE {UNFINISHED}") == 0, "no run is left"
        )
        longest = int(crowd.runs.number(LIFETIMES))
        failed = crowd.runs.number("SELECT count(*) FROM runs WHERE status = 'FAILURE'")
    if longest > STUCK_SECONDS:
        raise AssertionError(f"a run was stuck for {longest} s")
    effects = _expect_nothing_lost(world, crowd)
    return {
        "killed": len(killed),
        "due": due,
        "runs failed by it": failed,
        "longest run s": longest,
        "sellers an hour": crowd.sellers_an_hour(),
        "effects": effects,
    }


class Crowd:
    """Registered sellers, those of them that are due, longest first, and the hosts that crawl them."""

    def __init__(
        self, world: World, settings: Settings, runs: DagsterRuns, registered: list[str], sellers: list[str]
    ) -> None:
        self._world = world
        self.settings = settings
        self.runs = runs
        self.registered = registered
        self.sellers = sellers
        self.registered_in = 0.0
        self.control: Host | None = None
        self.workers: list[Host] = []

    def make_due(self, sellers: Sequence[str]) -> None:
        """These are due, the first of them for longest, and no other seller."""
        overdue = [float(len(sellers) - place) for place in range(len(sellers))]
        with self._world.database.transaction() as connection:
            connection.execute(MAKE_DUE, {"sellers": list(sellers), "overdue": overdue})

    def all_crawled(self) -> bool:
        """Whether every due seller has been crawled without a failed task."""
        return self.crawled_at_least(len(self.sellers))

    def crawled_at_least(self, number: int) -> bool:
        """Whether so many sellers have been crawled; that is unknown while PostgreSQL is away."""
        try:
            return self._world.number(COMPLETED) >= number
        except OperationalError:
            return False

    def opened(self) -> list[tuple[str, datetime]]:
        """The sellers in the order in which their crawls were opened."""
        with self._world.database.reading() as connection:
            return [(row.seller_id, row.created_at) for row in connection.execute(OPENED)]

    def sellers_an_hour(self) -> int:
        """How fast they were crawled, from the first crawl's opening to the last one's end."""
        with self._world.database.reading() as connection:
            rows = list(connection.execute(OPENED))
        took = max(row.ended_at for row in rows) - min(row.created_at for row in rows)
        return round(len(rows) * 3600 / took.total_seconds())

    def kill_child(self, command: str) -> None:
        """kill -9 of every process on the control host whose command has these words."""
        wait_for_hosts(partial(self._running, command), f"{command} runs on the control host")
        for child in self._running(command):
            child.kill()

    def kill_worker(self) -> None:
        """kill -9 of a run worker's host, with runs in its hands."""
        worker = self.workers[0]
        wait_for_hosts(partial(self.runs.started_by, worker), "the worker has begun a run")
        worker.kill()

    def _running(self, command: str) -> list[psutil.Process]:
        assert self.control is not None
        found: list[psutil.Process] = []
        for child in psutil.Process(self.control.process.pid).children(recursive=True):
            with suppress(psutil.Error):
                if command in " ".join(child.cmdline()):
                    found.append(child)
        return found


@contextmanager
def many_sellers(
    world: World,
    registered: int,
    due: int,
    launcher: Launcher,
    *,
    crawls_at_once: int,
    workers: int = 2,
    **changed: object,
) -> Generator[Crowd]:
    """Register them all, make some due, and start the hosts."""
    settings = shared_settings(
        world,
        run_launcher=launcher,
        crawls_at_once=crawls_at_once,
        # Room for backfills' three, one of housekeeping, a relay and recovery.
        runs_at_once=crawls_at_once + 6,
        **{"run_worker_slots": 3, "lease_seconds": 10} | changed,
    )
    names = [f"seller {number:04}" for number in range(registered)]
    sellers = random.Random(1).sample(names, due)
    for seller_id in sellers:
        world.market.add_seller(seller_id, PRODUCTS)
    with dagster_runs(settings) as runs, ExitStack() as hosts:
        crowd = Crowd(world, settings, runs, names, sellers)
        file = world.settings.home / "sellers.csv"
        file.write_text("".join(f"{name},{name}\n" for name in names))
        began = time.monotonic()
        run_on_host(world, settings, "control", "mustit", "seller", "load", str(file))
        crowd.registered_in = time.monotonic() - began
        crowd.make_due(sellers)
        crowd.control = hosts.enter_context(host(world, settings, "control", *UP))
        if launcher == "celery":
            for number in range(workers):
                name = f"worker-{number + 1}"
                crowd.workers.append(hosts.enter_context(host(world, settings, name, *RUN_WORKER)))
        yield crowd


def _expect_oldest_first(opened: Sequence[tuple[str, datetime]], sellers: Sequence[str]) -> None:
    """Who was due for longer is crawled first; crawls of one tick are opened at the same moment."""
    place = {seller_id: number for number, seller_id in enumerate(sellers)}
    if sorted(place) != sorted(seller_id for seller_id, _ in opened):
        raise AssertionError("crawled were others than those that were due, or some of them twice")
    ordered = sorted(opened, key=lambda entry: (entry[1], place[entry[0]]))
    if [seller_id for seller_id, _ in ordered] != list(sellers):
        raise AssertionError("they were not crawled in the order in which they were due")


def expect_calm(watch: Watch, crawls_at_once: int) -> None:
    """No more at once than promised, and the UI answers all the time."""
    if watch.crawls > crawls_at_once:
        raise AssertionError(f"{watch.crawls} crawls were queued or going on at once, {crawls_at_once} have a lane")
    if not watch.answers or watch.slowest > LONGEST_ANSWER_SECONDS:
        raise AssertionError(f"the UI took {watch.slowest:.1f} s to answer, or never did")
    if watch.silence > LONGEST_SILENCE_SECONDS:
        raise AssertionError(f"a daemon was silent for {watch.silence:.0f} s")


def _expect_nothing_lost(world: World, crowd: Crowd) -> int:
    effects = check_all(world, crowd.sellers[0], crowd.settings)
    for seller_id in crowd.sellers:
        check_convergence(world, seller_id)
    if effects != PRODUCTS * len(crowd.sellers):
        raise AssertionError(f"{effects} effects, {PRODUCTS} of each seller were due")
    return effects


def _kill_postgres(world: World) -> None:
    pid = embedded.status(world.settings.home).postgres_pid
    if pid is None:
        raise AssertionError("PostgreSQL does not run")
    os.kill(pid, signal.SIGKILL)


MANY_SELLERS_SCENARIOS: tuple[Callable[[World, Size], Numbers], ...] = (
    many_sellers_in_processes,
    many_sellers_in_warm_workers,
    everything_killed_in_turn,
)
