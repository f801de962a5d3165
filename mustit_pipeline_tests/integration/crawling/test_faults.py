"""The worker against a marketplace that misbehaves in every way the simulator knows."""

import asyncio
from datetime import timedelta

import pytest
from sqlalchemy import text

from mustit_pipeline.agents import roster
from mustit_pipeline.crawling import steering
from mustit_pipeline.crawling.crawl import Crawl
from mustit_pipeline.crawling.result_buffer import WorkReport
from mustit_pipeline.crawling.sql import executions
from mustit_pipeline.crawling.steering import open_or_join
from mustit_pipeline.domain.states import ExecutionStatus, SweepStatus
from mustit_pipeline.domain.values import CrawlingInterval, SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.foundation.failures import FetchError
from mustit_pipeline.sellers import registry
from mustit_pipeline.simulator.control import MarketplaceControl
from mustit_pipeline.simulator.process import RunningSimulator
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.integration.crawling.checks import check_outcomes
from mustit_pipeline_tests.integration.crawling.conftest import Stock
from mustit_pipeline_tests.integration.crawls import crawl, register
from mustit_pipeline_tests.integration.marketplace.server import Exchange, response
from mustit_pipeline_tests.integration.marketplace.server import marketplace as serving

PASSING = [
    *(
        "429",
        "5xx",
        "late",
        "slow",
        "drip",
        "reset",
        "truncated",
        "html",
        "null",
        "wrong_shape",
        "token_refused",
    )
]
TIMEOUTS = {"read_timeout_seconds": 1, "total_timeout_seconds": 1.5}


@pytest.mark.parametrize("endpoint", ["detail", "options"])
def test_a_crawl_completes_through_every_passing_fault_of_product_calls(
    endpoint: str, database: Database, market: MarketplaceControl, stock: Stock
) -> None:
    settings = stock(len(PASSING), **TIMEOUTS)
    for product, kind in zip(market.products("s"), PASSING, strict=True):
        market.fault(kind, endpoint, itemNo=product["itemNo"], count=2, seconds=3, retryAfter="0")
    stored = crawl(database, settings, "s").stored
    assert {one["kind"]: one["used"] for one in market.faults()} == dict.fromkeys(PASSING, 2)
    assert (stored.execution.status, stored.execution.failed_tasks) == (ExecutionStatus.COMPLETED, 0)
    assert len(check_outcomes(database, stored.execution.id)) == 1 + 2 * len(PASSING)


def test_a_crawl_completes_through_every_passing_fault_of_listing_calls(
    database: Database, market: MarketplaceControl, stock: Stock
) -> None:
    # One call may meet them all, one after another.
    settings = stock(8, page_size=2, task_max_retries=10, **TIMEOUTS)
    for kind in PASSING:
        market.fault(kind, "listing", count=1, seconds=3, retryAfter="0")
    stored = crawl(database, settings, "s").stored
    assert {one["kind"]: one["used"] for one in market.faults()} == dict.fromkeys(PASSING, 1)
    assert (stored.execution.status, stored.execution.failed_tasks) == (ExecutionStatus.COMPLETED, 0)
    assert stored.sweep_status is SweepStatus.COMPLETE
    assert len(check_outcomes(database, stored.execution.id)) == 4 + 2 * 8


@pytest.mark.parametrize("products", [1, 100])
def test_a_product_that_is_always_throttled_ends_failed_and_holds_up_no_other(
    products: int, database: Database, market: MarketplaceControl, stock: Stock
) -> None:
    """It went from agent to agent for ever: they were suspended, the host was paused, and the crawl never ended."""
    settings = stock(products)
    market.fault("429", "detail", itemNo=market.products("s")[0]["itemNo"])
    stored = crawl(database, settings, "s").stored
    assert (stored.execution.status, stored.execution.failed_tasks) == (ExecutionStatus.COMPLETED, 1)
    outcomes = check_outcomes(database, stored.execution.id)
    assert [row.error_code for row in outcomes.values() if row.status == "FAILED"] == ["EXTERNAL_THROTTLED"]
    with database.reading() as connection:
        pool = roster.pool_status(connection, settings, utc_now())
    assert (pool.available, pool.circuit, pool.host_paused_until) == (pool.total, "closed", None)
    # Three agents decide, and twice as many 429s do in any case; no retry repeats what they have shown.
    assert {row.retry_count for row in outcomes.values()} == {0}
    assert settings.throttled_tries <= stored.throttled <= 2 * settings.throttled_tries


@pytest.mark.parametrize("kind", ["count_zero", "wrong_seller"])
def test_a_listing_page_that_lies_leaves_an_incomplete_sweep_and_a_whole_crawl(
    kind: str, database: Database, market: MarketplaceControl, stock: Stock
) -> None:
    settings = stock(8, page_size=2, max_concurrent_requests=1)
    market.add_seller("other", 1)
    opened = open_or_join(database, SellerId("s"), triggered_by="test", now=utc_now())
    lie = [kind]

    def after_the_first_page(_: WorkReport) -> None:
        if lie:
            market.fault(lie.pop(), "listing", count=1)

    Crawl(database, settings, opened.stored).sweep(60, after_the_first_page)
    stored = crawl(database, settings, "s").stored
    assert stored.execution.status is ExecutionStatus.COMPLETED
    assert stored.sweep_status is SweepStatus.INCOMPLETE
    check_outcomes(database, stored.execution.id)


def test_a_lasting_fault_fails_its_own_task_after_three_attempts_with_a_reason_and_nothing_else(
    database: Database, market: MarketplaceControl, stock: Stock
) -> None:
    settings = stock(20)
    market.add_seller("other", 1)
    items = [product["itemNo"] for product in market.products("s")]
    malformed = ["truncated", "html", "null", "wrong_shape"]
    asked: dict[str, int] = {}
    reasons: dict[str, str] = {}
    kept: set[str] = set()

    def break_it(kind: str, endpoint: str, code: str, requests: int, **more: object) -> None:
        item = items.pop()
        market.fault(kind, endpoint, itemNo=item, **more)
        name, path = ("DETAIL", f"item/{item}/detail/top") if endpoint == "detail" else ("OPTION", f"{item}/options")
        reasons[f"PRODUCT_{name}:{item}"] = code
        if code == "EXTERNAL_MALFORMED_BODY" and kind not in ("truncated", "html"):
            kept.add(f"PRODUCT_{name}:{item}")
        asked[path] = requests

    for endpoint in ("detail", "options"):
        for kind in malformed:
            break_it(kind, endpoint, "EXTERNAL_MALFORMED_BODY", 3)
        break_it("5xx", endpoint, "EXTERNAL_SERVER_ERROR", 3)
        break_it("reset", endpoint, "EXTERNAL_NETWORK_BROKEN", 9)
    break_it("wrong_seller", "options", "EXTERNAL_MALFORMED_BODY", 3)
    break_it("token_refused", "detail", "EXTERNAL_UNAUTHORIZED", 6)
    break_it("status", "detail", "EXTERNAL_NOT_FOUND", 1, status=404)

    stored = crawl(database, settings, "s").stored

    assert stored.execution.status is ExecutionStatus.COMPLETED
    rows = check_outcomes(database, stored.execution.id)
    failed = {key: row for key, row in rows.items() if row.status == "FAILED"}
    assert {key: row.error_code for key, row in failed.items()} == reasons
    assert all(row.error_text for row in failed.values())
    # What is JSON, and refused for its shape, another parser may read.
    assert {key for key, row in failed.items() if row.bodies} == kept
    assert {key: row.retry_count for key, row in failed.items()} == {
        key: 0 if code == "EXTERNAL_NOT_FOUND" else 2 for key, code in reasons.items()
    }
    urls = market.requested_urls()
    assert {path: sum(n for url, n in urls.items() if path in url) for path in asked} == asked
    assert stored.requests == sum(n for url, n in urls.items() if "mustit-api" in url)


def test_a_refused_session_costs_one_repeat_and_no_retry(
    database: Database, market: MarketplaceControl, stock: Stock
) -> None:
    settings = stock(3)
    market.fault("token_refused", "detail", count=1)
    stored = crawl(database, settings, "s").stored
    rows = check_outcomes(database, stored.execution.id)
    assert {(row.status, row.retry_count) for row in rows.values()} == {("COMPLETED", 0)}
    assert stored.requests == 1 + 1 + 2 * 3 + 1


def test_throttled_calls_cost_neither_retries_nor_releases(
    database: Database, market: MarketplaceControl, stock: Stock
) -> None:
    settings = stock(20, suspend_seconds=1)
    market.fault("429", "api", share=0.25, count=9, retryAfter="0")
    stored = crawl(database, settings, "s").stored
    rows = check_outcomes(database, stored.execution.id)
    assert {(row.status, row.retry_count, row.release_count) for row in rows.values()} == {("COMPLETED", 0, 0)}
    assert stored.throttled == 9


@pytest.mark.parametrize(
    ("kind", "more", "soon"),
    [("5xx", {}, True), ("reset", {}, True), ("html", {}, True), ("status", {"status": 404}, False)],
)
def test_a_seller_whose_count_call_fails_for_now_is_tried_again_soon_and_then_after_its_interval(
    kind: str,
    more: dict[str, int],
    soon: bool,
    database: Database,
    make_settings: MakeSettings,
    marketplace: RunningSimulator,
    market: MarketplaceControl,
) -> None:
    """Two seconds without an answer cost a seller its whole interval."""
    market.add_seller("s", 3)
    registry.register(database, SellerId("s"), "s", CrawlingInterval.days(30), utc_now())
    market.fault(kind, "listing", **more)
    settings = make_settings(base_url=marketplace.url, plan_backoff_seconds=60)
    for tries in (1, 2):
        with pytest.raises(FetchError):
            crawl(database, settings, "s")
        pause = timedelta(minutes=tries) if soon else timedelta(days=30)
        assert abs(due_in(database) - pause) < timedelta(seconds=30)

    market.clear_faults()
    assert crawl(database, settings, "s").stored.execution.status is ExecutionStatus.COMPLETED
    assert due_in(database) > timedelta(days=29)
    market.fault(kind, "listing", **more)
    with pytest.raises(FetchError):
        crawl(database, settings, "s")
    assert (due_in(database) < timedelta(minutes=1)) is soon


def due_in(database: Database) -> timedelta:
    """How long the only seller waits for its next crawl."""
    with database.reading() as connection:
        return connection.execute(text("SELECT next_due_at - now() FROM crawling_schedules")).scalar_one()


def test_a_count_call_that_fails_harms_no_crawl_that_another_run_has_planned_meanwhile(
    database: Database, make_settings: MakeSettings, marketplace: RunningSimulator, market: MarketplaceControl
) -> None:
    """The second of two planners failed what the first one was working on."""
    market.add_seller("s", 3)
    register(database, "s")
    stored = open_or_join(database, SellerId("s"), triggered_by="test", now=utc_now()).stored
    first = Crawl(database, make_settings(base_url=marketplace.url), stored)

    async def overtaken(exchange: Exchange) -> None:
        if exchange.request.target == "/":
            await exchange.send(response(b"", "Set-Cookie: token=t"))
        else:
            await asyncio.to_thread(first.sweep, 30)
            await exchange.send(response(b"", status="404 Not Found"))

    async def plan_late() -> None:
        async with serving(overtaken) as elsewhere:
            late = make_settings(base_url=f"http://127.0.0.1:{elsewhere.port}", task_max_retries=0)
            await asyncio.to_thread(Crawl(database, late, stored).sweep, 30)

    asyncio.run(plan_late())
    assert first.reload().execution.status is ExecutionStatus.RUNNING
    assert crawl(database, first.settings, "s").stored.execution.status is ExecutionStatus.COMPLETED
    assert due_in(database) > timedelta(hours=23)


def test_a_crawl_whose_count_call_fails_has_its_reason_and_is_resumed_from_there(
    database: Database, market: MarketplaceControl, stock: Stock
) -> None:
    settings = stock(3)
    market.fault("html", "listing")
    with pytest.raises(FetchError):
        crawl(database, settings, "s")
    with database.reading() as connection:
        failed = executions.newest(connection, None, 1).rows[0]
    assert failed.execution.status is ExecutionStatus.FAILED
    assert failed.execution.error_code == "EXTERNAL_MALFORMED_BODY"
    assert failed.execution.error_text
    assert failed.requests == 3

    market.clear_faults()
    steering.resume(database, failed.execution.id)
    done = crawl(database, settings, "s").stored
    assert done.execution.id == failed.execution.id
    assert done.execution.status is ExecutionStatus.COMPLETED
    assert done.execution.started_at is not None
    assert done.execution.error_text is None
    assert len(check_outcomes(database, done.execution.id)) == 1 + 2 * 3
