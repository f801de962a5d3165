"""Crawls that are killed, stopped, paused, cancelled or cut into slices go on where they were."""

import signal
import time
from collections import Counter
from functools import partial

import pytest
from sqlalchemy import text

from mustit_pipeline.catalog.processing import process
from mustit_pipeline.crawling import steering
from mustit_pipeline.crawling.crawl import Crawl
from mustit_pipeline.crawling.planning import PRODUCT_TYPES
from mustit_pipeline.crawling.result_buffer import WorkReport
from mustit_pipeline.crawling.steering import deactivate_seller, open_or_join
from mustit_pipeline.crawling.worker import HELD_SECONDS
from mustit_pipeline.domain.states import ExecutionStatus, TaskType
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.simulator.control import MarketplaceControl
from mustit_pipeline_tests.integration.crawling.checks import check_outcomes, number, task_rows
from mustit_pipeline_tests.integration.crawling.child import crawling, wait_until
from mustit_pipeline_tests.integration.crawling.conftest import Stock
from mustit_pipeline_tests.integration.crawls import crawl

SELLER = SellerId("s")
ENDED = "SELECT completed_tasks FROM crawling_schedule_executions"


def calls(market: MarketplaceControl) -> Counter[str]:
    return Counter({url: times for url, times in market.requested_urls().items() if "mustit-api" in url})


def stored_calls(database: Database) -> set[str]:
    with database.reading() as connection:
        found = connection.execute(text("SELECT request_url FROM crawler_tasks WHERE status = 'COMPLETED'")).scalars()
        return {url.partition("/mustit-api")[2] for url in found}


def repeats(market: MarketplaceControl) -> int:
    return sum(times - 1 for times in calls(market).values())


def _ended(database: Database, at_least: int) -> bool:
    return number(database, ENDED) >= at_least


def test_a_crawl_killed_again_and_again_repeats_nothing_that_was_stored(
    database: Database, market: MarketplaceControl, stock: Stock
) -> None:
    settings = stock(60, page_size=20, lease_seconds=1, max_concurrent_requests=5, total_timeout_seconds=5)
    market.settings(latencyMs=20)
    moments = (1, 60)
    kept: dict[str, int] = {}
    for moment in moments:
        with crawling(settings, "s") as process:
            wait_until(partial(_ended, database, moment))
            process.kill()
            process.wait()
        assert {url: times for url, times in calls(market).items() if url in kept} == kept
        stored = stored_calls(database)
        kept = {url: times for url, times in calls(market).items() if url.partition("/mustit-api")[2] in stored}
        assert len(kept) == len(stored) >= moment
    again = crawl(database, settings, "s").stored
    after = calls(market)
    assert again.execution.status is ExecutionStatus.COMPLETED
    assert {url: after[url] for url in kept} == kept
    # The count call is no task; what a kill repeats was in flight or not yet stored.
    assert repeats(market) <= len(moments) * (2 * settings.max_concurrent_requests + 1)
    rows = check_outcomes(database, again.execution.id)
    assert {row.status for row in rows.values()} == {"COMPLETED"}
    assert len(rows) == 3 + 2 * 60


def test_none_of_a_stopped_workers_late_writes_count(
    database: Database, market: MarketplaceControl, stock: Stock
) -> None:
    settings = stock(120, lease_seconds=1, max_concurrent_requests=5, total_timeout_seconds=5)
    market.settings(latencyMs=20)
    busy = """
        SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'
    """
    held = "SELECT count(*) FROM crawler_tasks WHERE status = 'IN_PROGRESS'"
    with crawling(settings, "s") as process:
        wait_until(partial(_ended, database, 10))

        def stopped() -> bool:
            """Inside a transaction it would hold its locks; with nothing in hand it could not be late, and with nothing
            but what is in flight it could not send more."""
            assert process.poll() is None, "it ended before it could be stopped"
            process.send_signal(signal.SIGSTOP)
            if not number(database, busy) and number(database, held) > settings.max_concurrent_requests:
                return True
            process.send_signal(signal.SIGCONT)
            return False

        wait_until(stopped)
        lost = number(database, held)
        # Longer than its lease, and longer than it may hold what it has not sent.
        time.sleep(HELD_SECONDS)
        done = crawl(database, settings, "s").stored
        rows = check_outcomes(database, done.execution.id)
        asked = market.audit()["requests"]
        process.send_signal(signal.SIGCONT)
        assert process.wait(60) == 0
    assert lost > settings.max_concurrent_requests
    assert market.audit()["requests"] - asked <= settings.max_concurrent_requests
    assert done.execution.status is ExecutionStatus.COMPLETED
    assert check_outcomes(database, done.execution.id) == rows
    assert {(row.status, row.bodies) for row in rows.values()} == {("COMPLETED", 1)}


def test_a_heartbeat_keeps_the_lease_of_a_request_that_is_slower_than_the_lease(
    database: Database, market: MarketplaceControl, stock: Stock
) -> None:
    settings = stock(2, lease_seconds=0.6)
    market.fault("slow", "detail", seconds=2.5)
    stored = crawl(database, settings, "s").stored
    rows = check_outcomes(database, stored.execution.id)
    assert {(row.status, row.release_count) for row in rows.values()} == {("COMPLETED", 0)}
    assert stored.requests == 1 + 1 + 2 * 2


@pytest.mark.parametrize("how", ["pause", "cancel", "deactivate"])
def test_a_running_crawl_takes_no_further_task_once_it_is_stopped(
    how: str, database: Database, market: MarketplaceControl, stock: Stock
) -> None:
    settings = stock(80, max_concurrent_requests=4)
    opened = open_or_join(database, SELLER, triggered_by="test", now=utc_now())
    work = Crawl(database, settings, opened.stored)
    work.sweep(60)
    execution_id = opened.stored.execution.id
    stops = [
        {
            "pause": lambda: steering.pause(database, execution_id),
            "cancel": lambda: steering.cancel(database, execution_id, utc_now()),
            "deactivate": lambda: deactivate_seller(database, SELLER, utc_now()),
        }[how]
    ]

    def stop_once(_: WorkReport) -> None:
        if stops:
            stops.pop()()

    report = work.fetch_products(PRODUCT_TYPES, 60, stop_once)
    asked = market.audit()["requests"]
    stored = work.reload().execution
    rows = check_outcomes(database, execution_id, ended=how != "pause")
    assert asked < 120
    if how == "pause":
        assert stored.status is ExecutionStatus.PAUSED
        assert report.remaining == stored.remaining > 0
        assert {row.status for row in rows.values()} == {"COMPLETED", "PUBLISHED"}
        work.fetch_products(PRODUCT_TYPES, 60)
        assert market.audit()["requests"] == asked
        steering.resume(database, execution_id)
        done = crawl(database, settings, "s").stored
        assert (done.execution.id, done.execution.status) == (execution_id, ExecutionStatus.COMPLETED)
        assert repeats(market) == 0
        check_outcomes(database, execution_id)
    else:
        assert stored.status is ExecutionStatus.CANCELLED
        assert {row.error_code for row in rows.values()} == {None, "CANCELLED"}


def test_a_paused_crawl_with_few_agents_sends_little_of_what_it_holds(
    database: Database, market: MarketplaceControl, stock: Stock
) -> None:
    """It leases ahead of its agents, and each request that it sent once renewed its right to send the rest."""
    agents, gap = 3, 0.1
    settings = stock(200, min_request_gap_seconds=gap, breaker_min_available=0)
    work = Crawl(database, settings, open_or_join(database, SELLER, triggered_by="test", now=utc_now()).stored)
    work.sweep(60)
    with database.transaction() as connection:
        few = f"SELECT agent_id FROM user_agents ORDER BY agent_id LIMIT {agents}"
        others = f"UPDATE user_agents SET status = 'BLOCKED', revision = revision + 1 WHERE agent_id NOT IN ({few})"
        connection.execute(text(others))
    asked: list[int] = []

    def pause_late(report: WorkReport) -> None:
        if report.completed >= 100 and not asked:
            steering.pause(database, work.stored.execution.id)
            asked.append(market.audit()["requests"])

    work.fetch_products(PRODUCT_TYPES, 60, pause_late)

    sent = market.audit()["requests"] - asked[0]
    assert sent <= 1.2 * HELD_SECONDS * agents / gap + settings.max_concurrent_requests / 10


def test_short_slices_finish_a_crawl_without_hurting_a_task(
    database: Database, market: MarketplaceControl, stock: Stock
) -> None:
    settings = stock(16, page_size=10, max_concurrent_requests=2)
    market.settings(latencyMs=50)
    work = Crawl(database, settings, open_or_join(database, SELLER, triggered_by="test", now=utc_now()).stored)
    slices = 0
    while work.end().execution.is_open:
        slices += 1
        assert slices < 200
        work.sweep(0.3)
        work.fetch_products(PRODUCT_TYPES, 0.3)
        process(database, SELLER, now=utc_now)
    rows = check_outcomes(database, work.stored.execution.id)
    assert slices >= 3
    assert {(row.status, row.retry_count, row.release_count) for row in rows.values()} == {("COMPLETED", 0, 0)}
    assert repeats(market) == 0


def test_waiting_for_agents_over_many_slices_costs_no_task_anything(
    database: Database, market: MarketplaceControl, stock: Stock
) -> None:
    settings = stock(40, requests_per_hour=1)
    work = Crawl(database, settings, open_or_join(database, SELLER, triggered_by="test", now=utc_now()).stored)
    work.sweep(30)
    work.fetch_products(PRODUCT_TYPES, 3)
    for _ in range(6):
        work.fetch_products(PRODUCT_TYPES, 0.1)
    rows = task_rows(database, work.stored.execution.id)
    assert Counter(row.status for row in rows.values()) == {"COMPLETED": 49, "PUBLISHED": 81 - 49}
    assert {(row.retry_count, row.release_count) for row in rows.values()} == {(0, 0)}
    # Every request that the agents had was sent: none was booked for nothing.
    assert market.audit()["requests"] == 50


def test_a_task_that_is_throttled_while_no_agent_is_left_goes_back_unharmed_however_often(
    database: Database, market: MarketplaceControl, stock: Stock
) -> None:
    settings = stock(1, lease_seconds=0.3, breaker_min_available=0)
    work = Crawl(database, settings, open_or_join(database, SELLER, triggered_by="test", now=utc_now()).stored)
    work.sweep(30)
    market.fault("429", "api", retryAfter="0")
    for _ in range(6):
        market.reset_audit()
        work.fetch_products([TaskType.PRODUCT_DETAIL], 0.5)
        assert market.audit()["requests"] > 0
        with database.transaction() as connection:
            connection.execute(text("UPDATE pool_state SET paused_until = NULL, pause_level = 0"))
            revived = "UPDATE user_agents SET status = 'AVAILABLE', suspended_until = NULL, revision = revision + 1"
            connection.execute(text(revived))
    rows = task_rows(database, work.stored.execution.id)
    fetched = [row for key, row in rows.items() if key.startswith("PRODUCT")]
    assert {(row.status, row.retry_count, row.release_count) for row in fetched} == {("PUBLISHED", 0, 0)}
