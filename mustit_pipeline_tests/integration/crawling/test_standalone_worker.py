"""The worker of its own: it serves every crawl that runs, outlives PostgreSQL, and stops when it is told to."""

import asyncio
import math
from collections.abc import Callable, Coroutine, Generator
from pathlib import Path
from typing import Any

import psutil
import pytest
from psycopg import sql
from sqlalchemy import make_url, text
from structlog.testing import capture_logs

from mustit_pipeline import embedded
from mustit_pipeline.agents import roster
from mustit_pipeline.catalog.processing import process
from mustit_pipeline.crawling.crawl import Crawl
from mustit_pipeline.crawling.planning import PRODUCT_TYPES
from mustit_pipeline.crawling.result_buffer import WorkReport
from mustit_pipeline.crawling.standalone_worker import serve
from mustit_pipeline.crawling.steering import open_or_join
from mustit_pipeline.domain.states import ExecutionStatus, TaskType
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation import event_loop, schema
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database, make_engine
from mustit_pipeline.settings import Settings
from mustit_pipeline.simulator.control import MarketplaceControl
from mustit_pipeline.simulator.process import RunningSimulator
from mustit_pipeline_tests.conftest import MakeSettings, TestServers, dagster_beside
from mustit_pipeline_tests.integration.crawling.checks import check_outcomes, number
from mustit_pipeline_tests.integration.crawling.child import wait_until
from mustit_pipeline_tests.integration.crawls import register

OPEN = "SELECT count(*) FROM crawler_tasks WHERE status NOT IN ('COMPLETED', 'FAILED')"
HELD = "SELECT count(*) FROM crawler_tasks WHERE lease_owner IS NOT NULL"
AWAY = "PostgreSQL does not answer"
ENDED = "SELECT sum(completed_tasks) FROM crawling_schedule_executions"


def swept(database: Database, settings: Settings, market: MarketplaceControl, seller_id: str, products: int) -> Crawl:
    """A crawl whose listing has been seen; all its products are left to other workers."""
    market.add_seller(seller_id, products)
    register(database, seller_id)
    opened = open_or_join(database, SellerId(seller_id), triggered_by="test", now=utc_now())
    work = Crawl(database, settings, opened.stored)
    work.sweep(30)
    return work


async def until(condition: Callable[[], object]) -> None:
    await asyncio.to_thread(wait_until, condition)


def serving(
    database: Database, settings: Settings, scenario: Callable[[asyncio.Task[None]], Coroutine[Any, Any, None]]
) -> list[WorkReport]:
    """Something happens while a worker serves; returns the report of each worker that took over from the last."""
    reports: list[WorkReport] = []

    def follow(report: WorkReport) -> None:
        if not any(report is known for known in reports):
            reports.append(report)

    async def go() -> None:
        service = asyncio.create_task(serve(database, settings, math.inf, follow))
        try:
            await scenario(service)
        finally:
            service.cancel()
            with pytest.raises(asyncio.CancelledError):
                await service

    event_loop.run(go())
    return reports


def test_one_worker_serves_the_crawls_of_many_sellers_and_ends_none_of_them_itself(
    database: Database, make_settings: MakeSettings, marketplace: RunningSimulator, market: MarketplaceControl
) -> None:
    settings = make_settings(base_url=marketplace.url, max_concurrent_requests=10)
    sellers = {"one": 3, "two": 12, "셀러 셋": 7}
    crawls = [swept(database, settings, market, seller, products) for seller, products in sellers.items()]
    market.reset_audit()

    async def all_done(_: asyncio.Task[None]) -> None:
        await until(lambda: not number(database, OPEN))

    (report,) = serving(database, settings, all_done)

    assert (report.completed, report.failed) == (2 * sum(sellers.values()), 0)
    assert {times for url, times in market.requested_urls().items() if "mustit-api" in url} == {1}
    for work, products in zip(crawls, sellers.values(), strict=True):
        assert work.reload().execution.status is ExecutionStatus.RUNNING
        process(database, work.stored.execution.seller_id, now=utc_now)
        assert work.end().execution.status is ExecutionStatus.COMPLETED
        assert len(check_outcomes(database, work.stored.execution.id)) == 1 + 2 * products


def test_products_pass_the_pages_of_another_seller_that_may_not_be_sent_yet(
    database: Database, make_settings: MakeSettings, marketplace: RunningSimulator, market: MarketplaceControl
) -> None:
    """The sixth page once held up everything that was leased after it, however many agents were free."""
    settings = make_settings(
        base_url=marketplace.url,
        page_size=2,
        min_request_gap_seconds=0,
        read_timeout_seconds=300,
        total_timeout_seconds=300,
        grace_seconds=0.1,
    )
    products = swept(database, settings, market, "products", 100)
    market.add_seller("pages", 80)
    register(database, "pages")
    opened = open_or_join(database, SellerId("pages"), triggered_by="test", now=utc_now())
    pages = Crawl(database, settings, opened.stored)
    pages.sweep(0)
    market.fault("slow", "listing", seconds=300)

    async def all_products(_: asyncio.Task[None]) -> None:
        await until(lambda: not products.remaining(PRODUCT_TYPES))

    serving(database, settings, all_products)

    assert pages.remaining([TaskType.MINISHOP]) == 40


def test_a_worker_waits_for_work_and_takes_what_is_planned_later(
    database: Database, make_settings: MakeSettings, marketplace: RunningSimulator, market: MarketplaceControl
) -> None:
    settings = make_settings(base_url=marketplace.url)

    async def work_comes(_: asyncio.Task[None]) -> None:
        await asyncio.sleep(0.2)
        await asyncio.to_thread(swept, database, settings, market, "late", 4)
        await until(lambda: not number(database, OPEN))

    serving(database, settings, work_comes)

    assert number(database, ENDED) == 1 + 2 * 4


def test_a_worker_with_little_time_stops_by_itself_and_leaves_nothing_behind(
    database: Database, make_settings: MakeSettings, marketplace: RunningSimulator, market: MarketplaceControl
) -> None:
    settings = make_settings(base_url=marketplace.url, max_concurrent_requests=2)
    work = swept(database, settings, market, "s", 40)
    market.settings(latencyMs=50)

    event_loop.run(serve(database, settings, 0.5))

    assert 0 < number(database, OPEN) < 80
    assert number(database, HELD) == 0
    check_outcomes(database, work.stored.execution.id, ended=False)


def test_connections_that_break_in_mid_crawl_are_made_anew_and_nothing_is_lost_or_stored_twice(
    database: Database, make_settings: MakeSettings, marketplace: RunningSimulator, market: MarketplaceControl
) -> None:
    settings = make_settings(base_url=marketplace.url, max_concurrent_requests=4, lease_seconds=1)
    work = swept(database, settings, market, "s", 60)
    market.settings(latencyMs=20)
    kill = text("""
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()
    """)

    def break_all() -> None:
        with database.transaction() as connection:
            connection.execute(kill)

    async def broken_twice(service: asyncio.Task[None]) -> None:
        for moment in (20, 60):
            await until(lambda moment=moment: number(database, ENDED) >= moment)
            await asyncio.to_thread(break_all)
        await until(lambda: not number(database, OPEN))
        assert not service.done()

    serving(database, settings, broken_twice)

    rows = check_outcomes(database, work.stored.execution.id)
    assert {row.status for row in rows.values()} == {"COMPLETED"}
    repeated = sum(times - 1 for url, times in market.requested_urls().items() if "/item/" in url or "options" in url)
    assert repeated <= 2 * 2 * 4


def test_a_worker_waits_out_a_server_that_takes_no_writes_and_leaves_it_when_another_does(
    database: Database,
    make_settings: MakeSettings,
    test_servers: TestServers,
    marketplace: RunningSimulator,
    market: MarketplaceControl,
) -> None:
    """As in a failover: it ended the worker, whose connections would have stayed with the server that is a copy now."""
    settings = make_settings(base_url=marketplace.url, max_concurrent_requests=4, lease_seconds=1)
    work = swept(database, settings, market, "s", 40)
    market.settings(latencyMs=20)
    database_name, refusal = database.engine.url.database or "", "InternalError"
    name = sql.Identifier(database_name)

    def fail_over() -> None:
        with test_servers.admin() as admin:
            admin.execute(sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on").format(name))
            admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [database_name])

    def come_back() -> None:
        with test_servers.admin() as admin:
            admin.execute(sql.SQL("ALTER DATABASE {} RESET default_transaction_read_only").format(name))

    async def read_only_for_a_while(service: asyncio.Task[None]) -> None:
        await until(lambda: number(database, ENDED) >= 10)
        await asyncio.to_thread(fail_over)
        await until(lambda: service.done() or any(line["event"] == AWAY and line["error"] == refusal for line in said))
        await asyncio.to_thread(come_back)
        await until(lambda: service.done() or not number(database, OPEN))
        assert not service.done()

    with capture_logs() as said:
        try:
            serving(database, settings, read_only_for_a_while)
        finally:
            come_back()

    rows = check_outcomes(database, work.stored.execution.id)
    assert {row.status for row in rows.values()} == {"COMPLETED"}


@pytest.fixture
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Path]:
    """Servers of the test's own, that another process uses too: its keeper starts again what dies."""
    home = tmp_path_factory.mktemp("own") / "home"
    embedded.attach(home, redis=False)
    yield home
    embedded.stop(home)


def test_a_worker_outlives_a_postgres_that_dies_and_starts_again_and_stops_even_while_it_is_away(
    own_server: Path, make_settings: MakeSettings, marketplace: RunningSimulator, market: MarketplaceControl
) -> None:
    """A worker that was told to stop while PostgreSQL was away once took that for one more outage to wait for."""
    url = embedded.attach(own_server, redis=False).database_url
    database = Database(make_engine(make_url(url)))
    settings = make_settings(
        base_url=marketplace.url,
        database_url=url,
        dagster_database_url=dagster_beside(url),
        lease_seconds=1,
        max_concurrent_requests=4,
        grace_seconds=0.5,
    )

    def up() -> bool:
        try:
            return number(database, "SELECT 1") == 1
        except Exception:  # any refusal means: not yet
            return False

    def all_ended() -> bool:
        try:
            return not number(database, OPEN)
        except Exception:  # it may be away a moment longer
            return False

    def postgres() -> psutil.Process:
        pid = embedded.status(own_server).postgres_pid
        assert pid is not None
        return psutil.Process(pid)

    async def dies(service: asyncio.Task[None]) -> None:
        await until(lambda: number(database, ENDED) >= 10)
        postgres().kill()
        await until(all_ended)
        assert not service.done()
        # Now it is away while the worker is told to stop, with a request in its hands.
        market.settings(latencyMs=2000)
        await asyncio.to_thread(swept, database, settings, market, "second", 3)
        await until(lambda: number(database, HELD))
        keeper = psutil.Process(embedded.status(own_server).keeper_pid)
        keeper.suspend()
        try:
            postgres().kill()
            service.cancel()
            _, pending = await asyncio.wait([service], timeout=20)
            assert not pending
        finally:
            keeper.resume()

    try:
        with database.transaction() as connection:
            schema.upgrade(connection)
            roster.ensure_builtin(connection)
        work = swept(database, settings, market, "s", 30)
        market.settings(latencyMs=20)
        serving(database, settings, dies)
        wait_until(up)
        rows = check_outcomes(database, work.stored.execution.id)
        assert {row.status for row in rows.values()} == {"COMPLETED"}
    finally:
        database.close()
