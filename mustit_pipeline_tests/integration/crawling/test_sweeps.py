"""Sweeps of a listing that moves while it is read."""

from collections.abc import Callable

from sqlalchemy import text

from mustit_pipeline.crawling.crawl import Crawl
from mustit_pipeline.crawling.planning import (
    CHANGED_PRODUCT_PRIORITY,
    KNOWN_PRODUCT_PRIORITY,
    NEW_PRODUCT_PRIORITY,
)
from mustit_pipeline.crawling.result_buffer import WorkReport
from mustit_pipeline.crawling.steering import open_or_join
from mustit_pipeline.crawling.worker import MOST_PAGES
from mustit_pipeline.domain.states import ExecutionStatus, SweepStatus
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.settings import Settings
from mustit_pipeline.simulator.control import MarketplaceControl
from mustit_pipeline_tests.integration.crawling.checks import check_outcomes, number, task_rows
from mustit_pipeline_tests.integration.crawling.conftest import Stock
from mustit_pipeline_tests.integration.crawls import crawl

SELLER = SellerId("s")
SEEN = "SELECT count(*) FROM products WHERE last_seen_execution_id = :execution"


def sweep(database: Database, settings: Settings, meanwhile: Callable[[], object] = lambda: None) -> Crawl:
    """A sweep during which something happens once the first page is stored."""
    work = Crawl(database, settings, open_or_join(database, SELLER, triggered_by="test", now=utc_now()).stored)
    once = [meanwhile]

    def stored(_: WorkReport) -> None:
        if once:
            once.pop()()

    work.sweep(60, stored)
    return work


def pages(database: Database, work: Crawl) -> int:
    return sum(key.startswith("MINISHOP") for key in task_rows(database, work.stored.execution.id))


def test_a_listing_that_shifts_under_the_sweep_is_joined_by_item_and_known_to_be_incomplete(
    database: Database, market: MarketplaceControl, stock: Stock
) -> None:
    settings = stock(20, page_size=5, max_concurrent_requests=1)
    # After the count call and the first page: what was last is now first, and its place shows others twice.
    market.shift("s", 2, after_listings=2)
    first = crawl(database, settings, "s").stored
    assert first.execution.status is ExecutionStatus.COMPLETED
    assert first.sweep_status is SweepStatus.INCOMPLETE
    assert number(database, SEEN, execution=first.execution.id.value) == 18
    assert len(check_outcomes(database, first.execution.id)) == 4 + 2 * 18
    again = crawl(database, settings, "s").stored
    assert again.sweep_status is SweepStatus.COMPLETE
    assert number(database, "SELECT count(*) FROM products") == 20


def test_products_that_vanish_during_the_sweep_leave_an_empty_page_and_an_incomplete_sweep(
    database: Database, market: MarketplaceControl, stock: Stock
) -> None:
    settings = stock(20, page_size=5, max_concurrent_requests=1)
    last = [product["itemNo"] for product in market.products("s")][-6:]
    work = sweep(database, settings, lambda: market.remove("s", last))
    assert work.reload().sweep_status is SweepStatus.INCOMPLETE
    assert number(database, SEEN, execution=work.stored.execution.id.value) == 14
    assert pages(database, work) == 4


def test_a_page_that_is_shown_twice_leaves_an_incomplete_sweep_which_says_nothing_about_what_is_gone(
    database: Database, market: MarketplaceControl, stock: Stock
) -> None:
    settings = stock(20, page_size=5)
    crawl(database, settings, "s")
    market.remove("s", [market.products("s")[12]["itemNo"]])
    market.fault("repeated_page", "listing", pageNo=2)
    for _ in range(settings.deletion_sweeps + 1):
        stored = crawl(database, settings, "s").stored
        assert (stored.sweep_status, stored.listed_count) == (SweepStatus.INCOMPLETE, 19)
        assert number(database, SEEN, execution=stored.execution.id.value) == 14
        assert number(database, "SELECT count(*) FROM products WHERE deleted_at IS NOT NULL OR absent_sweeps > 0") == 0
    market.clear_faults()
    again = crawl(database, settings, "s").stored
    assert again.sweep_status is SweepStatus.COMPLETE
    assert number(database, SEEN, execution=again.execution.id.value) == 19
    assert number(database, "SELECT count(*) FROM products WHERE deleted_at IS NOT NULL") == 0


def test_products_that_appear_during_the_sweep_add_the_page_that_holds_the_pushed_ones(
    database: Database, market: MarketplaceControl, stock: Stock
) -> None:
    settings = stock(20, page_size=5, max_concurrent_requests=1)
    work = sweep(database, settings, lambda: market.add_products("s", 3))
    stored = work.reload()
    assert (stored.sweep_status, stored.listed_count) == (SweepStatus.INCOMPLETE, 23)
    assert pages(database, work) == 5
    assert number(database, SEEN, execution=stored.execution.id.value) == 20


def test_a_seller_without_products_is_swept_completely_with_no_task(database: Database, stock: Stock) -> None:
    stored = crawl(database, stock(0), "s").stored
    assert (stored.execution.status, stored.execution.total_tasks) == (ExecutionStatus.COMPLETED, 0)
    assert stored.sweep_status is SweepStatus.COMPLETE


def test_few_pages_are_under_way_at_once_however_long_the_listing_is(
    database: Database, market: MarketplaceControl, stock: Stock
) -> None:
    """A hundred pages of 500 products at once took as much memory as all the rest of a crawl."""
    market.settings(latencyMs=30)
    settings = stock(90, page_size=2, min_request_gap_seconds=0)

    work = sweep(database, settings)

    assert pages(database, work) == 45
    assert work.reload().sweep_status is SweepStatus.COMPLETE
    assert 2 <= market.audit()["maxInFlight"] <= MOST_PAGES < settings.max_concurrent_requests


def test_new_products_are_planned_first_and_then_those_whose_listing_entry_has_changed(
    database: Database, market: MarketplaceControl, stock: Stock
) -> None:
    settings = stock(6)
    crawl(database, settings, "s")
    known = sorted(product["itemNo"] for product in market.products("s"))
    changed = market.change("s", known[3], "PRICE").item_no
    (new,) = market.add_products("s", 1)

    work = sweep(database, settings)

    query = text("""
        SELECT DISTINCT priority, item_no FROM crawler_tasks WHERE execution_id = :id AND item_no IS NOT NULL
    """)
    with database.reading() as connection:
        rows = connection.execute(query, {"id": work.stored.execution.id.value}).all()
    assert {row.item_no: row.priority for row in rows} == {
        **dict.fromkeys(known, KNOWN_PRODUCT_PRIORITY),
        changed: CHANGED_PRODUCT_PRIORITY,
        new: NEW_PRODUCT_PRIORITY,
    }
