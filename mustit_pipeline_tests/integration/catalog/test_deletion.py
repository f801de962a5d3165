"""The deletion guard, crawl by crawl against a real listing: gone is only what is proven to be gone."""

from uuid import uuid4

import pytest
from sqlalchemy import text

from mustit_pipeline.catalog import deletion
from mustit_pipeline.crawling.crawl import Crawl
from mustit_pipeline.crawling.planning import PRODUCT_TYPES
from mustit_pipeline.crawling.steering import open_or_join
from mustit_pipeline.domain.errors import Conflict
from mustit_pipeline.domain.filters import IdPrefix
from mustit_pipeline.domain.states import LifeCycle, SweepStatus
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline_tests.integration.catalog.guarded import PRODUCTS, Guarded
from mustit_pipeline_tests.integration.catalog.shelf import assert_whole, utc_now
from mustit_pipeline_tests.integration.crawls import crawl


def test_a_product_absent_from_two_complete_sweeps_and_gone_is_deleted_once_and_may_return(guarded: Guarded) -> None:
    gone = guarded.items[0]
    guarded.shop.remove(guarded.seller_id, [gone])

    guarded.crawl()
    assert guarded.deleted() == []
    second = guarded.crawl()
    assert guarded.deleted() == [gone]
    assert second.stored.execution.failed_tasks == 0
    guarded.crawl()
    assert guarded.life(gone) == ["CREATED", "DELETED"]

    guarded.shop.restore(guarded.seller_id, [gone])
    back = guarded.crawl()

    assert back.report.versions == {LifeCycle.RESTORED: 1}
    assert guarded.life(gone) == ["CREATED", "DELETED", "RESTORED"]
    assert guarded.deleted() == []
    assert_whole(guarded.database)


def test_a_product_that_its_probe_finds_alive_is_kept(guarded: Guarded) -> None:
    hidden = guarded.items[0]
    guarded.shop.remove(guarded.seller_id, [hidden])
    guarded.crawl()
    opened = open_or_join(guarded.database, SellerId(guarded.seller_id), triggered_by="test", now=utc_now())
    work = Crawl(guarded.database, guarded.settings, opened.stored)
    work.sweep(60)
    guarded.shop.restore(guarded.seller_id, [hidden])

    work.fetch_products(PRODUCT_TYPES, 60)
    ended = work.end()

    assert ended.execution.failed_tasks == 0
    assert ended.execution.total_tasks == 2 + 2 * 9 + 1
    assert guarded.deleted() == []
    assert guarded.life(hidden) == ["CREATED"]


@pytest.mark.parametrize("fault", ["html", "5xx"])
def test_a_probe_without_a_clear_answer_keeps_the_product(guarded: Guarded, fault: str) -> None:
    gone = guarded.items[0]
    guarded.shop.remove(guarded.seller_id, [gone])
    guarded.crawl()
    guarded.shop.fault(fault, "detail", itemNo=gone)
    guarded.crawl()
    assert guarded.deleted() == []

    guarded.shop.clear_faults()
    guarded.crawl()
    assert guarded.deleted() == [gone]


def test_incomplete_sweeps_delete_nothing_and_count_nothing(guarded: Guarded) -> None:
    gone = guarded.items[0]
    guarded.shop.remove(guarded.seller_id, [gone])
    guarded.crawl()

    assert guarded.crawl(limit=3).stored.sweep_status is SweepStatus.INCOMPLETE
    one_by_one = guarded.settings.model_copy(update={"max_concurrent_requests": 1})
    # The count and the first page are answered, then the last products move to where no crawl looks any more.
    guarded.shop.shift(guarded.seller_id, 2, after_listings=2)
    shifted = crawl(guarded.database, one_by_one, guarded.seller_id)

    assert shifted.stored.sweep_status is SweepStatus.INCOMPLETE
    assert guarded.deleted() == []
    guarded.crawl()
    assert guarded.deleted() == [gone]


def test_a_sweep_that_would_delete_too_much_is_held_and_later_sweeps_bring_the_hold_up_to_date(
    guarded: Guarded,
) -> None:
    three = guarded.items[:3]
    guarded.shop.remove(guarded.seller_id, three)

    for _ in range(3):
        guarded.crawl()
    assert guarded.holds() == [("OPEN", three, 10)]
    assert guarded.deleted() == []

    guarded.shop.restore(guarded.seller_id, three[:1])
    guarded.shop.remove(guarded.seller_id, guarded.items[-1:])
    guarded.crawl()
    assert guarded.holds() == [
        ("CLOSED", three, 10),
        ("OPEN", sorted([*three[1:], guarded.items[-1]]), 10),
    ]

    guarded.shop.restore(guarded.seller_id, guarded.items[-1:])
    guarded.crawl()
    assert [status for status, _, _ in guarded.holds()] == ["CLOSED", "CLOSED"]
    assert guarded.deleted() == []
    guarded.crawl()
    assert guarded.deleted() == three[1:]
    assert_whole(guarded.database)


def test_what_an_admin_looked_at_never_grows_under_its_id(guarded: Guarded) -> None:
    """A hold of three once became one of all ten, and the approval of the three deleted them all."""
    guarded.shop.remove(guarded.seller_id, guarded.items[:4])
    guarded.crawl()
    guarded.shop.restore(guarded.seller_id, guarded.items[:1])
    guarded.crawl()
    looked_at = newest_hold(guarded)
    assert guarded.holds() == [("OPEN", guarded.items[1:4], 10)]

    guarded.shop.fault("count_zero", "listing", sellerId=guarded.seller_id)
    guarded.crawl()

    assert guarded.holds() == [("CLOSED", guarded.items[1:4], 10), ("OPEN", guarded.items, 10)]
    with pytest.raises(Conflict):
        deletion.approve(guarded.database, looked_at, utc_now())
    assert guarded.deleted() == []


def newest_hold(guarded: Guarded) -> IdPrefix:
    with guarded.database.reading() as connection:
        query = text("SELECT hold_id FROM deletion_holds ORDER BY opened_at DESC LIMIT 1")
        return IdPrefix(str(connection.execute(query).scalar_one()))


def test_a_deleted_product_that_a_wrong_page_shows_is_not_brought_back(guarded: Guarded) -> None:
    """It is another seller's by now: seen again, but its detail says whose it is."""
    item = guarded.items[0]
    guarded.shop.remove(guarded.seller_id, [item])
    guarded.crawl()
    guarded.crawl()
    assert guarded.deleted() == [item]
    guarded.shop.add_seller(f"other-{uuid4().hex[:8]}", 1)
    guarded.shop.restore(guarded.seller_id, [item])
    fault = guarded.shop.fault("wrong_seller", "detail", itemNo=item)

    assert guarded.crawl().stored.foreign_items == 1

    assert guarded.life(item) == ["CREATED", "DELETED"]
    guarded.shop.clear_faults(fault)
    guarded.shop.set_fields(guarded.seller_id, item, discountPrice=1000)
    guarded.crawl()
    assert guarded.life(item) == ["CREATED", "DELETED", "RESTORED"]
    assert_whole(guarded.database)


@pytest.mark.parametrize(("answer", "options"), [("wrong_seller", {}), ("status", {"status": 410})])
def test_a_probe_is_confirmed_by_another_sellers_name_and_by_410_too(
    guarded: Guarded, answer: str, options: dict[str, int]
) -> None:
    gone = guarded.items[0]
    guarded.shop.add_seller(f"other-{uuid4().hex[:8]}", 1)
    guarded.shop.remove(guarded.seller_id, [gone])
    guarded.crawl()
    opened = open_or_join(guarded.database, SellerId(guarded.seller_id), triggered_by="test", now=utc_now())
    work = Crawl(guarded.database, guarded.settings, opened.stored)
    work.sweep(60)
    guarded.shop.restore(guarded.seller_id, [gone])
    guarded.shop.fault(answer, "detail", itemNo=gone, **options)

    work.fetch_products(PRODUCT_TYPES, 60)

    assert work.end().execution.failed_tasks == 0
    assert guarded.deleted() == [gone]


def test_a_listing_that_suddenly_says_zero_is_held(guarded: Guarded) -> None:
    guarded.shop.fault("count_zero", "listing", sellerId=guarded.seller_id)
    for _ in range(3):
        assert guarded.crawl().stored.sweep_status is SweepStatus.COMPLETE

    assert guarded.holds() == [("OPEN", guarded.items, 10)]
    assert guarded.deleted() == []


def test_another_sellers_products_are_never_adopted_and_leave_no_hold_behind(guarded: Guarded) -> None:
    other = f"other-{uuid4().hex[:8]}"
    guarded.shop.add_seller(other, 1)
    fault = guarded.shop.fault("wrong_seller", "listing", sellerId=guarded.seller_id)
    wrong = guarded.crawl()

    assert wrong.report.versions == {}
    assert guarded.deleted() == []
    assert [status for status, _, _ in guarded.holds()] == ["OPEN"]

    guarded.shop.clear_faults(fault)
    for _ in range(3):
        assert guarded.crawl().report.versions == {}
    assert [status for status, _, _ in guarded.holds()] == ["CLOSED"]
    assert all(item not in guarded.items for item in guarded.deleted())
    assert [guarded.life(item) for item in guarded.items] == [["CREATED"]] * PRODUCTS
    assert_whole(guarded.database)
