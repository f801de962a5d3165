"""What can be done to the crawl engine's processes: killed, stopped for too long, and Redis taken from under them."""

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from sqlalchemy import text

from mustit_pipeline import embedded
from mustit_pipeline.crawling.crawl import Crawl
from mustit_pipeline.crawling.sql.executions import StoredExecution
from mustit_pipeline.crawling.steering import find, open_or_join
from mustit_pipeline.domain.states import ExecutionStatus
from mustit_pipeline.domain.values import ExecutionId, SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.settings import Settings
from mustit_pipeline_tests.faults.children import crawling, working
from mustit_pipeline_tests.faults.invariants import check_all
from mustit_pipeline_tests.faults.scenarios import LONG, SELLER, Numbers, Size
from mustit_pipeline_tests.faults.world import PATIENCE_SECONDS, World, wait_until
from mustit_pipeline_tests.integration.crawls import crawl, register

BUSY = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'
"""
HELD = "SELECT count(*) FROM crawler_tasks WHERE status = 'IN_PROGRESS'"
COMPLETED = "SELECT coalesce(sum(completed_tasks), 0) FROM crawling_schedule_executions"
HURT = "SELECT count(*) FROM crawler_tasks WHERE status <> 'COMPLETED' OR retry_count > 0 OR release_count > 0"
# On a busy machine a crawl takes more than one.
MOST_SLICES = 5
LATE = "late results dropped"
# Requests that were really made are counted for each worker; everything else of a late writer is not.
WRITTEN = {
    "crawler_tasks": "t",
    "product_raw_data": "t",
    "products": "t",
    "product_change_sets": "t",
    "product_outbox": "t",
    "crawling_schedule_executions": "(execution_id, status, total_tasks, completed_tasks, failed_tasks, listed_count)",
}


def crawl_killed_at_random_moments(world: World, size: Size) -> Numbers:
    """kill -9 of the crawl again and again: every product is fetched, nothing is stored twice, little is repeated."""
    world.market.add_seller(SELLER, size.products)
    world.market.settings(latencyMs=size.latency_ms)
    register(world.database, SELLER)
    settings = world.with_settings(max_concurrent_requests=10, page_size=100, lease_seconds=1)
    opened = _open(world)
    moments = random.Random(20)
    most = 2 * settings.max_concurrent_requests
    kills = lost = 0
    while kills < size.kills and find(world.database, opened).execution.is_open:
        before = world.market.audit()["requests"]
        unstored_before = _unstored(world)
        with crawling(world, settings, SELLER) as process:
            wait_until(partial(_asked_more_than, world, before, process.poll), "the crawl asks for something")
            time.sleep(moments.uniform(0.0, 4 * size.latency_ms / 1000))
            if process.poll() is None:
                kills += 1
            elif find(world.database, opened).execution.is_open:
                raise AssertionError(f"the crawl's process ended with {process.poll()}, and the crawl is open")
            process.kill()
            process.wait()
        unstored = _unstored(world) - unstored_before
        if unstored > most:
            raise AssertionError(f"{unstored} answers were lost by one kill, {most} may be")
        lost = max(lost, unstored)
    if kills < size.kills:
        raise AssertionError(f"the crawl was over after {kills} kills: make it longer")
    ended = _finished(world, settings, opened)
    repeated = sum(times - 1 for times in _asked(world).values())
    if repeated > kills * most:
        raise AssertionError(f"{repeated} requests were repeated, {kills * most} may be")
    effects = check_all(world, SELLER, settings)
    return {
        "kills": kills,
        "tasks": ended.execution.total_tasks,
        "requests repeated": repeated,
        "allowed": kills * most,
        "most by one kill": lost,
        "effects": effects,
    }


def stopped_worker_comes_back_too_late(world: World, size: Size) -> Numbers:
    """SIGSTOP of `mustit worker` past its lease, then SIGCONT: what others took over stands, its own writes do not."""
    world.market.add_seller(SELLER, 60)
    world.market.settings(latencyMs=200)
    register(world.database, SELLER)
    # However long it stands still on a busy machine, its answers are worth storing to it when it comes back.
    settings = world.with_settings(
        max_concurrent_requests=5, lease_seconds=1, read_timeout_seconds=120, total_timeout_seconds=240
    )
    rounds = 8 if size == LONG else 1
    held = 0
    for number in range(rounds):
        opened = _open(world)
        Crawl(world.database, settings, find(world.database, opened)).sweep(PATIENCE_SECONDS)
        enough = world.number(COMPLETED) + 10 + 5 * number
        with working(world, settings) as process:
            wait_until(partial(_completed, world, enough), "the worker works")
            held += _stop_with_work_in_hand(world, process)
            time.sleep(settings.lease_seconds + 0.2)
            crawl(world.database, settings, SELLER)
            _finished(world, settings, opened)
            stands = _written(world)
            late = world.logged().count(LATE)
            process.send_signal(signal.SIGCONT)
            wait_until(partial(_tried_to_store, world, late, stands), "the late worker tries to store")
            process.send_signal(signal.SIGTERM)
            if process.wait(PATIENCE_SECONDS) != 0:
                raise AssertionError(f"the worker ended with {process.returncode}")
        changed = [table for table, rows in _written(world).items() if rows != stands[table]]
        if changed:
            raise AssertionError(f"the late worker has changed {', '.join(changed)}")
    return {"stops": rounds, "tasks in its hands": held, "effects": check_all(world, SELLER, settings)}


def redis_killed_in_mid_crawl(world: World, size: Size) -> Numbers:
    """Redis is killed and comes back empty while the limits are tight: no window is ever over, and nothing is hurt."""
    kills, products, window = (6, 600, 6.0) if size == LONG else (2, 80, 3.0)
    limits = {"requests_per_hour": 2 if size != LONG else 8, "window_seconds": window}
    settings = world.with_settings(**limits)
    world.market.settings(requestsPerWindow=limits["requests_per_hour"], windowSeconds=window)
    world.market.add_seller(SELLER, products)
    register(world.database, SELLER)
    opened = _open(world)
    tasks = 1 + 2 * products
    with ThreadPoolExecutor(1) as background:
        crawled = background.submit(crawl, world.database, settings, SELLER)
        for number in range(kills):
            wait_until(partial(_completed, world, tasks * (number + 1) // (kills + 2)), "the crawl goes on")
            kill_redis(settings)
        crawled.result(PATIENCE_SECONDS)
    ended = find(world.database, opened)
    _expect_whole(ended)
    if hurt := world.number(HURT):
        raise AssertionError(f"{hurt} tasks were hurt by it")
    hand_overs = world.number("SELECT epoch FROM pool_state") - 1
    if not hand_overs:
        raise AssertionError("no process noticed that Redis was killed")
    effects = check_all(world, SELLER, settings)
    most = world.market.audit()["maxInWindow"]
    return {"kills": kills, "hand-overs": hand_overs, "most in a window": most, "effects": effects}


def _open(world: World) -> ExecutionId:
    opened = open_or_join(world.database, SellerId(SELLER), triggered_by="chaos", now=utc_now())
    return opened.stored.execution.id


def _finished(world: World, settings: Settings, execution_id: ExecutionId) -> StoredExecution:
    """The execution, crawled to its end if it is not there yet; on a busy machine a slice is not enough."""
    for _ in range(MOST_SLICES):
        if find(world.database, execution_id).execution.is_open:
            crawl(world.database, settings, SELLER)
    ended = find(world.database, execution_id)
    _expect_whole(ended)
    return ended


def _expect_whole(ended: StoredExecution) -> None:
    if ended.execution.status is not ExecutionStatus.COMPLETED or ended.execution.failed_tasks:
        raise AssertionError(f"the crawl ended {ended.execution.status}, {ended.execution.failed_tasks} tasks failed")


def _asked(world: World) -> dict[str, int]:
    """How often each task's address was asked for; the count call is no task."""
    urls = world.market.requested_urls()
    return {url: times for url, times in urls.items() if "mustit-api" in url and "pageSize=1&" not in url}


def _unstored(world: World) -> int:
    """How many requests have come to nothing so far."""
    return sum(_asked(world).values()) - world.number(COMPLETED)


def _asked_more_than(world: World, number: int, poll: Callable[[], object]) -> bool:
    return world.market.audit()["requests"] > number or poll() is not None


def _completed(world: World, at_least: int) -> bool:
    return world.number(COMPLETED) >= at_least


def _tried_to_store(world: World, late: int, stands: dict[str, list[str]]) -> bool:
    """Its results were refused, or (which must not be) taken."""
    return world.logged().count(LATE) > late or _written(world) != stands


def _stop_with_work_in_hand(world: World, process: subprocess.Popen[bytes]) -> int:
    """Stopped inside a transaction it would hold its locks; stopped with nothing in hand it could not be late."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        process.send_signal(signal.SIGSTOP)
        # No other process calls the marketplace now: what is in flight there comes back to a stopped worker.
        if world.market.audit()["inFlight"] and not world.number(BUSY):
            return world.number(HELD)
        process.send_signal(signal.SIGCONT)
        time.sleep(0.01)
    raise AssertionError(f"the worker was never met with work in hand; it ended with {process.poll()}")


def _written(world: World) -> dict[str, list[str]]:
    """Everything that a worker can write, row by row."""
    with world.database.reading() as connection:
        return {
            table: list(connection.execute(text(f"SELECT CAST({row} AS text) FROM {table} t ORDER BY 1")).scalars())
            for table, row in WRITTEN.items()
        }


def kill_redis(settings: Settings) -> None:
    """As kill -9 does; its keeper starts it again, and it has kept nothing."""
    wait_until(lambda: embedded.status(settings.home).redis_pid is not None, "Redis is back")
    pid = embedded.status(settings.home).redis_pid
    if pid is None:
        raise AssertionError("Redis does not run")
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: embedded.status(settings.home).redis_pid not in (None, pid), "Redis is back")


ENGINE_SCENARIOS: tuple[Callable[[World, Size], Numbers], ...] = (
    crawl_killed_at_random_moments,
    stopped_worker_comes_back_too_late,
    redis_killed_in_mid_crawl,
)
