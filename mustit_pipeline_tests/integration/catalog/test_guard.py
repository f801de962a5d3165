"""The publication guard: what too many suspicious products are among stays unpublished, and nothing of it is lost."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from mustit_pipeline.catalog.processing import BatchSize, ProcessingReport, absorb_waiting, process
from mustit_pipeline.catalog.product_data import Sources, merge
from mustit_pipeline.catalog.releasing import release
from mustit_pipeline.catalog.sql.change_holds import UNPRICED
from mustit_pipeline.domain.change_hold import BeliefRules
from mustit_pipeline.domain.errors import Conflict, NotFound
from mustit_pipeline.domain.states import LifeCycle
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.database import Database
from mustit_pipeline_tests.integration.catalog.shelf import Shelf, assert_whole, utc_now

RULES = BeliefRules(jump_factor=3, share=0.2, least=3)
ITEMS = range(1, 11)


@pytest.fixture
def shelf(database: Database) -> Shelf:
    """A seller with ten published products at 30,000 won."""
    made = Shelf(database)
    crawl(made)
    return made


def crawl(
    shelf: Shelf,
    changed: dict[int, dict[str, Any]] | None = None,
    after_each: Callable[[], object] = lambda: None,
    **options: Any,
) -> ProcessingReport:
    """A crawl of all items, some of which say something else in their detail."""
    if shelf.rows("SELECT 1 FROM crawling_schedule_executions WHERE status = 'COMPLETED' AND execution_id = :e"):
        shelf.open()
    shelf.listing(*ITEMS, price="30,000", originalPrice="30,000")
    for item in ITEMS:
        prices: dict[str, Any] = dict.fromkeys(("normalPrice", "sellingPrice", "discountPrice"), 30_000)
        shelf.detail(item, **prices | (changed or {}).get(item, {}))
        shelf.options(item)
        after_each()
    shelf.swept()
    report = process(shelf.database, SellerId(shelf.seller_id), now=utc_now, rules=RULES, **options)
    shelf.end()
    return report


def holds(shelf: Shelf) -> list[tuple[str, int, int]]:
    rows = shelf.rows("SELECT status, suspicious, looked_at FROM change_holds ORDER BY opened_at")
    return [(row["status"], row["suspicious"], row["looked_at"]) for row in rows]


def cheaper(count: int, price: int = 3_000) -> dict[int, dict[str, Any]]:
    return {item: {"discountPrice": price} for item in range(1, count + 1)}


def test_a_price_jump_of_many_products_holds_back_every_change_of_the_seller(shelf: Shelf) -> None:
    report = crawl(shelf, cheaper(3) | {9: {"stock": 77}}, batch=BatchSize(versions=1))

    assert report.held is not None
    assert (report.held.jumped, report.held.suspicious, report.held.looked_at) == (3, 3, 10)
    assert report.held.examples == (1, 2, 3)
    assert report.versions == {}
    assert holds(shelf) == [("OPEN", 3, 10)]
    assert [shelf.versions(item) for item in (1, 9)] == [[(1, "CREATED")]] * 2
    assert_whole(shelf.database)


def test_changes_that_were_absorbed_one_by_one_while_others_were_fetched_are_judged_together(shelf: Shelf) -> None:
    absorbed: list[int] = []

    def absorb() -> None:
        absorbed.append(absorb_waiting(shelf.database, SellerId(shelf.seller_id)).bodies)
        assert [shelf.versions(item) for item in ITEMS] == [[(1, "CREATED")]] * 10

    report = crawl(shelf, cheaper(3) | {9: {"stock": 77}}, absorb)

    assert absorbed == [3] + [2] * 9
    assert report.bodies == 0
    assert report.held is not None
    assert (report.held.suspicious, report.held.looked_at, report.versions) == (3, 10, {})
    assert holds(shelf) == [("OPEN", 3, 10)]
    assert_whole(shelf.database)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (cheaper(2), "two of ten are a fifth, and not more than that"),
        (cheaper(10, 10_000), "a third of the price is not less than a third"),
        (cheaper(10, 29_000), "a sale"),
        ({item: {"stock": 0} for item in ITEMS}, "sold out is no missing stock"),
        ({item: {"itemName": "다른 이름"} for item in ITEMS}, "a name that differs is there"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_can_happen_in_a_shop_goes_out(shelf: Shelf, changed: dict[int, dict[str, Any]], why: str) -> None:
    report = crawl(shelf, changed)

    assert report.held is None, why
    assert report.versions == {LifeCycle.UPDATED: len(changed)}


@pytest.mark.parametrize("lost", [{"stock": None}, {"headerCategoryCode": None, "headerCategory": None}], ids=str)
def test_products_that_lose_what_they_live_by_are_held_too(shelf: Shelf, lost: dict[str, Any]) -> None:
    report = crawl(shelf, dict.fromkeys(range(1, 5), lost))

    assert report.held is not None
    assert (report.held.emptied, report.held.jumped) == (4, 0)


def test_new_products_without_any_price_are_held_as_well(database: Database) -> None:
    shelf = Shelf(database)
    shelf.listing(*ITEMS, price=None, originalPrice=None)
    for item in ITEMS:
        shelf.detail(item, normalPrice=None, sellingPrice=None, discountPrice=None)
        shelf.options(item)
    shelf.swept()

    report = process(database, SellerId(shelf.seller_id), now=utc_now, rules=RULES)

    assert report.held is not None
    assert (report.held.emptied, report.versions) == (10, {})


def test_the_text_of_a_product_without_a_price_is_the_one_that_is_looked_for() -> None:
    assert UNPRICED in orjson.dumps(merge("dmont", 1, None, Sources(), Sources())).decode()


def test_a_release_publishes_everything_once_and_ends_the_hold(shelf: Shelf) -> None:
    crawl(shelf, cheaper(5) | {9: {"stock": 77}})

    report = release(shelf.database, SellerId(shelf.seller_id), now=utc_now)

    assert report.versions == {LifeCycle.UPDATED: 6}
    assert holds(shelf) == [("RELEASED", 5, 10)]
    assert [row["version"] for row in shelf.outbox(1)] == [1, 2]
    assert_whole(shelf.database)
    assert crawl(shelf, cheaper(5) | {9: {"stock": 77}}).versions == {}
    with pytest.raises(NotFound, match="held back"):
        release(shelf.database, SellerId(shelf.seller_id), now=utc_now)


@pytest.mark.parametrize("source", ["listing", "detail"])
def test_a_release_waits_for_bodies_that_came_in_since(shelf: Shelf, source: str) -> None:
    """Behind a waiting page no product is ready: the hold was released with nothing published, and opened again."""
    crawl(shelf, cheaper(5))
    if source == "listing":
        shelf.listing(*ITEMS, price="30,000", originalPrice="30,000")
    else:
        shelf.detail(10, discountPrice=1)

    with pytest.raises(Conflict, match="wait to be processed"):
        release(shelf.database, SellerId(shelf.seller_id), now=utc_now)

    assert holds(shelf) == [("OPEN", 5, 10)]
    assert shelf.versions(1) == [(1, "CREATED")]
    report = process(shelf.database, SellerId(shelf.seller_id), now=utc_now, rules=RULES)
    assert report.held is not None
    changed = 5 if source == "listing" else 6
    assert release(shelf.database, SellerId(shelf.seller_id), now=utc_now).versions == {LifeCycle.UPDATED: changed}
    assert [status for status, _, _ in holds(shelf)] == ["RELEASED"]


def test_a_release_during_which_a_crawl_is_opened_is_refused_as_a_whole(shelf: Shelf) -> None:
    crawl(shelf, cheaper(5))

    def meanwhile(_: ProcessingReport) -> None:
        shelf.open()

    with pytest.raises(Conflict, match="under way"):
        release(shelf.database, SellerId(shelf.seller_id), now=utc_now, progress=meanwhile)

    assert holds(shelf) == [("OPEN", 5, 10)]
    assert shelf.versions(1) == [(1, "CREATED")]


def test_bodies_that_come_in_between_two_batches_are_judged_before_the_next_is_published(shelf: Shelf) -> None:
    arrived: list[int] = []

    def meanwhile(report: ProcessingReport) -> None:
        if report.versions and not arrived:
            for item in range(3, 9):
                shelf.detail(item, normalPrice=30_000, sellingPrice=30_000, discountPrice=3_000)
                arrived.append(item)

    report = crawl(shelf, {1: {"stock": 5}, 9: {"stock": 5}}, batch=BatchSize(versions=1), progress=meanwhile)

    assert report.held is not None
    assert report.held.examples == tuple(arrived)
    assert [shelf.versions(item) for item in arrived] == [[(1, "CREATED")]] * len(arrived)


def test_what_another_processor_absorbs_between_two_batches_is_judged_before_it_is_published(shelf: Shelf) -> None:
    held_by_the_other: list[ProcessingReport] = []

    def meanwhile(report: ProcessingReport) -> None:
        if report.versions and not held_by_the_other:
            for item in range(3, 9):
                shelf.detail(item, normalPrice=30_000, sellingPrice=30_000, discountPrice=3_000)
            held_by_the_other.append(process(shelf.database, SellerId(shelf.seller_id), now=utc_now, rules=RULES))

    report = crawl(shelf, {1: {"stock": 5}, 9: {"stock": 5}}, batch=BatchSize(versions=1), progress=meanwhile)

    assert held_by_the_other[0].held is not None
    assert (report.held, holds(shelf)) == (held_by_the_other[0].held, [("OPEN", 6, 10)])
    assert [len(shelf.versions(item)) for item in ITEMS] == [2] + [1] * 9


def test_a_hold_ends_by_itself_when_the_next_crawl_is_believable(shelf: Shelf) -> None:
    crawl(shelf, cheaper(5))

    report = crawl(shelf, {9: {"stock": 77}})

    assert (report.held, report.versions) == (None, {LifeCycle.UPDATED: 1})
    assert holds(shelf) == [("CLOSED", 5, 10)]
    assert shelf.versions(1) == [(1, "CREATED")]


def test_a_hold_that_goes_on_says_what_was_found_last(shelf: Shelf) -> None:
    crawl(shelf, cheaper(3))
    crawl(shelf, cheaper(7))

    assert holds(shelf) == [("OPEN", 7, 10)]


def test_a_crawl_under_way_is_judged_by_what_it_has_come_to(shelf: Shelf) -> None:
    """A decimal point that slipped must not go out for the first fifth of a large seller, slice by slice."""
    shelf.open()
    shelf.listing(1, 2, 3, 4, price="30,000", originalPrice="30,000")
    for item in (1, 2, 3):
        shelf.detail(item, normalPrice=3_000, sellingPrice=3_000, discountPrice=3_000)
        shelf.options(item)

    report = process(shelf.database, SellerId(shelf.seller_id), now=utc_now, rules=RULES)

    assert report.held is not None
    assert (report.held.suspicious, report.held.looked_at) == (3, 4)


def test_a_crawl_under_way_neither_ends_a_hold_nor_lets_it_be_released(shelf: Shelf) -> None:
    """What it has still to fetch is not judged: a hold once seemed over until the slice that met its products."""
    crawl(shelf, cheaper(5))
    shelf.open()
    shelf.listing(*ITEMS[5:], price="30,000", originalPrice="30,000")

    report = process(shelf.database, SellerId(shelf.seller_id), now=utc_now, rules=RULES)

    assert report.held is None
    assert holds(shelf) == [("OPEN", 5, 10)]
    with pytest.raises(Conflict, match="under way"):
        release(shelf.database, SellerId(shelf.seller_id), now=utc_now)


def test_a_seller_that_is_held_does_not_hold_back_others(shelf: Shelf) -> None:
    other = Shelf(shelf.database, "other")
    crawl(other)
    crawl(shelf, cheaper(5))

    assert crawl(other, {1: {"stock": 5}}).versions == {LifeCycle.UPDATED: 1}
