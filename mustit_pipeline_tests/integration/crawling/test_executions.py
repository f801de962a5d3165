"""Executions: one open one per seller, the same call once, exactly what was asked for."""

from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import event, text
from sqlalchemy.exc import OperationalError

from mustit_pipeline.catalog.processing import process
from mustit_pipeline.crawling import steering
from mustit_pipeline.crawling.crawl import Crawl
from mustit_pipeline.crawling.planning import PRODUCT_TYPES, plan_pages, plan_probes, plan_products
from mustit_pipeline.crawling.sql import task_months, tasks
from mustit_pipeline.crawling.steering import open_or_join
from mustit_pipeline.domain.states import ExecutionStatus, SweepStatus, TaskType
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.foundation.failures import SessionRefused
from mustit_pipeline.marketplace.endpoints import Endpoints
from mustit_pipeline.settings import Settings
from mustit_pipeline.simulator.control import MarketplaceControl
from mustit_pipeline.simulator.process import RunningSimulator
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.integration.crawling.checks import check_outcomes, number, task_rows
from mustit_pipeline_tests.integration.crawling.child import wait_until
from mustit_pipeline_tests.integration.crawling.conftest import Stock
from mustit_pipeline_tests.integration.crawls import crawl, register

SELLER = SellerId("s")
ENDPOINTS = Endpoints("http://127.0.0.1:1", "/listing", 0, 10)
HOLDS = "SELECT count(*) FROM deletion_holds"


def opened(database: Database, settings: Settings) -> Crawl:
    return Crawl(database, settings, open_or_join(database, SELLER, triggered_by="test", now=utc_now()).stored)


def resumed_without_a_plan(database: Database, settings: Settings) -> Crawl:
    """A crawl that was given up before its count call was answered."""
    work = opened(database, settings)
    steering.give_up(database, work.stored.execution.id, "EXTERNAL_SESSION_REFUSED", "no token", utc_now())
    steering.resume(database, work.stored.execution.id)
    return work


def pause_host(database: Database, seconds: float) -> None:
    """The marketplace throttles everybody for so long."""
    with database.transaction() as connection:
        values = {"seconds": seconds}
        connection.execute(text("UPDATE pool_state SET paused_until = now() + make_interval(secs => :seconds)"), values)


@contextmanager
def pool_looks(database: Database) -> Generator[list[str]]:
    """How often the pool was asked whether it may be used."""
    looks: list[str] = []

    def look(_: object, __: object, statement: str, *___: object) -> None:
        if "FROM pool_state" in statement:
            looks.append(statement)

    event.listen(database.engine, "before_cursor_execute", look)
    try:
        yield looks
    finally:
        event.remove(database.engine, "before_cursor_execute", look)


def test_a_second_trigger_joins_the_open_execution_and_leaves_its_plan_and_interval(database: Database) -> None:
    register(database, "s")
    first = open_or_join(database, SELLER, triggered_by="api", now=utc_now(), product_limit=5)
    due = "SELECT extract(epoch FROM next_due_at) FROM crawling_schedules"
    before = number(database, due)
    second = open_or_join(database, SELLER, triggered_by="sqs", now=utc_now(), full_refetch=True)
    assert (first.joined, second.joined) == (False, True)
    assert second.stored.execution.id == first.stored.execution.id
    assert (second.stored.product_limit, second.stored.full_refetch, second.stored.triggered_by) == (5, False, "api")
    assert number(database, due) == before


def test_of_many_triggers_at_once_one_opens_and_the_others_join(database: Database) -> None:
    register(database, "s")
    # A month without a partition yet: they all try to make it.
    now = datetime(2031, 5, 31, tzinfo=UTC)
    with ThreadPoolExecutor(8) as threads:
        opened = list(threads.map(lambda who: open_or_join(database, SELLER, triggered_by=str(who), now=now), range(8)))
    assert sorted(one.joined for one in opened) == [False] + [True] * 7
    assert len({one.stored.execution.id for one in opened}) == 1
    assert number(database, "SELECT count(*) FROM crawling_schedule_executions") == 1


def test_sellers_that_open_in_a_new_month_at_once_share_its_partition(database: Database) -> None:
    sellers = [f"s{number}" for number in range(6)]
    register(database, *sellers)
    now = datetime(2031, 12, 1, tzinfo=UTC)
    with ThreadPoolExecutor(6) as threads:
        list(threads.map(lambda one: open_or_join(database, SellerId(one), triggered_by="t", now=now), sellers))
    with database.transaction() as connection:
        task_months.ensure_month(connection, now.date())
        bounds = connection.execute(
            text("SELECT pg_get_expr(relpartbound, oid) FROM pg_class WHERE relname = 'crawler_tasks_2031_12'")
        ).scalar_one()
    assert bounds == "FOR VALUES FROM ('2031-12-01') TO ('2032-01-01')"


def test_the_same_call_is_queued_once_however_often_it_is_planned_and_totals_stay_exact(database: Database) -> None:
    register(database, "s")
    stored = open_or_join(database, SELLER, triggered_by="test", now=utc_now()).stored
    pages = plan_pages(ENDPOINTS, SELLER, 25, None)
    products = plan_products(ENDPOINTS, {1: 0, 2: 3})
    with database.transaction() as connection:
        assert tasks.add(connection, stored.home, [*pages, *pages]) == 3
        assert tasks.add(connection, stored.home, [*pages, *products]) == 4
        # A probe is the same call as a detail: the one that is there already does for both.
        assert tasks.add(connection, stored.home, plan_probes(ENDPOINTS, [2, 9])) == 1
        assert tasks.add(connection, stored.home, []) == 0
    rows = task_rows(database, stored.execution.id)
    assert set(rows) == {
        *(f"MINISHOP:{page}" for page in range(3)),
        *(f"PRODUCT_{kind}:{item}" for kind in ("DETAIL", "OPTION") for item in (1, 2)),
        "PRODUCT_DETAIL:9",
    }
    assert number(database, "SELECT total_tasks FROM crawling_schedule_executions") == len(rows)


def test_a_cancelled_crawl_is_given_back_with_the_tasks_that_ended_with_it(database: Database) -> None:
    register(database, "s")
    stored = open_or_join(database, SELLER, triggered_by="test", now=utc_now()).stored
    with database.transaction() as connection:
        tasks.add(connection, stored.home, plan_products(ENDPOINTS, {1: 0, 2: 3}))
    cancelled = steering.cancel(database, stored.execution.id, utc_now()).execution
    assert (cancelled.status, cancelled.failed_tasks, cancelled.progress_rate) == (ExecutionStatus.CANCELLED, 4, 100)


def test_many_workers_planning_the_same_calls_at_once_queue_each_once(database: Database) -> None:
    register(database, "s")
    stored = open_or_join(database, SELLER, triggered_by="test", now=utc_now()).stored
    planned = plan_products(ENDPOINTS, dict.fromkeys(range(1, 201), 0))

    def plan(_: int) -> int:
        with database.transaction() as connection:
            return tasks.add(connection, stored.home, planned)

    with ThreadPoolExecutor(6) as threads:
        assert sum(threads.map(plan, range(6))) == 400
    assert number(database, "SELECT total_tasks FROM crawling_schedule_executions") == 400
    assert number(database, "SELECT count(*) FROM crawler_tasks") == 400


def test_a_limited_crawl_fetches_so_many_products_and_never_counts_as_a_whole_sweep(
    database: Database, market: MarketplaceControl, stock: Stock
) -> None:
    stored = crawl(database, stock(20, page_size=5), "s", limit=7).stored
    rows = check_outcomes(database, stored.execution.id)
    assert (stored.execution.status, stored.sweep_status) == (ExecutionStatus.COMPLETED, SweepStatus.INCOMPLETE)
    assert len(rows) == 2 + 2 * 7
    newest = [product["itemNo"] for product in market.products("s")][:7]
    assert {f"PRODUCT_DETAIL:{item}" for item in newest} <= set(rows)


def test_one_source_alone_is_refetched_for_known_products_without_a_sweep(
    database: Database, market: MarketplaceControl, stock: Stock
) -> None:
    settings = stock(4)
    crawl(database, settings, "s")
    for kind, path in ((TaskType.PRODUCT_DETAIL, "/detail/top"), (TaskType.PRODUCT_OPTION, "/options")):
        market.reset_audit()
        work = opened(database, settings)
        assert work.plan_known_products([kind]) == 4
        assert work.plan_known_products(PRODUCT_TYPES) == 0
        work.fetch_products([kind], 30)
        process(database, SELLER, now=utc_now)
        done = work.end()
        assert (done.execution.status, done.sweep_status) == (ExecutionStatus.COMPLETED, SweepStatus.INCOMPLETE)
        assert [path in url for url in market.requested_urls() if "mustit-api" in url] == [True] * 4
        check_outcomes(database, done.execution.id)


@pytest.mark.parametrize(("limit", "wanted"), [(None, 2500), (1200, 1200)])
def test_known_products_are_planned_a_thousand_at_a_time_and_all_or_none(
    database: Database, make_settings: MakeSettings, limit: int | None, wanted: int
) -> None:
    register(database, "s")
    with database.transaction() as connection:
        connection.execute(text("INSERT INTO products (seller_id, item_no) SELECT 's', generate_series(1, 2500)"))
    stored = open_or_join(database, SELLER, triggered_by="test", now=utc_now(), product_limit=limit).stored
    work = Crawl(database, make_settings(), stored)
    sizes: list[int] = []

    def watch(_: object, cursor: Any, statement: str, parameters: Any, *__: object) -> None:
        if "INSERT INTO crawler_tasks" in statement:
            sizes.append(len(parameters["keys"]))
            if len(sizes) == 2:
                cursor.connection.close()

    event.listen(database.engine, "before_cursor_execute", watch)
    with pytest.raises(OperationalError):
        work.plan_known_products(PRODUCT_TYPES)
    assert (work.reload().execution.status, number(database, "SELECT count(*) FROM crawler_tasks")) == ("PENDING", 0)

    assert work.plan_known_products(PRODUCT_TYPES) == 2 * wanted

    event.remove(database.engine, "before_cursor_execute", watch)
    assert max(sizes) == 2 * 1000
    planned = work.reload().execution
    assert (planned.status, planned.total_tasks) == (ExecutionStatus.RUNNING, 2 * wanted)


def test_a_marketplace_that_gives_no_session_fails_the_execution_which_can_be_resumed(
    database: Database, make_settings: MakeSettings, marketplace: RunningSimulator, market: MarketplaceControl
) -> None:
    """It once waited slice after slice for ever, because waiting for an agent is no failure."""
    market.add_seller("s", 2)
    register(database, "s")
    market.fault("reset", "session")
    settings = make_settings(base_url=marketplace.url, session_patience_seconds=0.5)
    work = opened(database, settings)

    with pytest.raises(SessionRefused):
        work.sweep(60)

    failed = work.reload().execution
    assert (failed.status, failed.error_code) == (ExecutionStatus.FAILED, "EXTERNAL_SESSION_REFUSED")
    market.clear_faults()
    steering.resume(database, failed.id)
    ended = crawl(database, make_settings(base_url=marketplace.url), "s").stored.execution
    assert (ended.id, ended.status, ended.total_tasks) == (failed.id, ExecutionStatus.COMPLETED, 1 + 2 * 2)


def test_an_execution_that_is_resumed_without_a_plan_has_swept_nothing_and_stays_open(
    database: Database, stock: Stock
) -> None:
    """With no agent free for the count call it once ended as a complete sweep that had seen none of the products."""
    settings = stock(10)
    crawl(database, settings, "s")
    work = resumed_without_a_plan(database, settings)
    pause_host(database, 3600)

    report = work.sweep(0.1)

    assert report.remaining == 1
    left = work.end()
    assert (left.execution.status, left.sweep_status) == (ExecutionStatus.RUNNING, SweepStatus.PENDING)
    assert number(database, HOLDS) == 0
    pause_host(database, 0)
    ended = crawl(database, settings, "s").stored
    assert (ended.execution.id, ended.execution.status) == (left.execution.id, ExecutionStatus.COMPLETED)
    assert (ended.sweep_status, ended.execution.total_tasks) == (SweepStatus.COMPLETE, 1 + 2 * 10)
    assert number(database, HOLDS) == 0


def test_a_resumed_execution_without_a_plan_can_be_planned_without_a_sweep(database: Database, stock: Stock) -> None:
    settings = stock(3)
    crawl(database, settings, "s")
    work = resumed_without_a_plan(database, settings)

    assert work.plan_known_products([TaskType.PRODUCT_OPTION]) == 3

    work.fetch_products([TaskType.PRODUCT_OPTION], 30)
    process(database, SELLER, now=utc_now)
    ended = work.end()
    assert (ended.execution.status, ended.sweep_status) == (ExecutionStatus.COMPLETED, SweepStatus.INCOMPLETE)


@pytest.mark.parametrize("ended_by", ["agents", "cancel", "pause"])
def test_a_slice_without_a_free_agent_waits_for_one_until_an_operator_stops_the_crawl(
    database: Database, ended_by: str, stock: Stock
) -> None:
    """It once ended at once, and the next slice began in the same second, for as long as the pool was of no use."""
    settings = stock(2)
    work = (resumed_without_a_plan if ended_by == "pause" else opened)(database, settings)
    execution_id = work.stored.execution.id
    pause_host(database, 3600)
    happens: dict[str, Callable[[], object]] = {
        "agents": lambda: pause_host(database, 0),
        "cancel": lambda: steering.cancel(database, execution_id, utc_now()),
        "pause": lambda: steering.pause(database, execution_id),
    }

    with ThreadPoolExecutor(1) as threads, pool_looks(database) as looks:
        sweeping = threads.submit(work.sweep, 60.0)
        wait_until(lambda: sweeping.done() or len(looks) >= 10)
        assert not sweeping.done()
        happens[ended_by]()
        report = sweeping.result()

    swept = ended_by == "agents"
    assert (report.remaining, report.requests) == ((0, 2) if swept else (1, 0))
    assert work.reload().is_planned == swept


def test_calls_that_were_made_before_no_agent_was_free_are_counted(
    database: Database, market: MarketplaceControl, stock: Stock
) -> None:
    settings = stock(2)
    market.fault("429", "listing", retryAfter=600)
    work = opened(database, settings)

    report = work.sweep(1)

    stored = work.reload()
    assert not stored.is_planned
    assert (stored.requests, stored.throttled) == (report.requests, report.throttled)
    assert stored.throttled > 0
