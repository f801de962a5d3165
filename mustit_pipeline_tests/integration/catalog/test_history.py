"""Every version of every product can be looked up, and any two compared."""

from datetime import timedelta

import pytest

from mustit_pipeline.catalog.history import compare, find_product, find_version, state
from mustit_pipeline.catalog.replay import Replaying, replay_failed
from mustit_pipeline.catalog.sql import history, raw
from mustit_pipeline.domain.errors import Conflict, NotFound
from mustit_pipeline.domain.filters import ChangeKind
from mustit_pipeline.domain.states import LifeCycle, OutboxStatus, RawStatus, TaskType
from mustit_pipeline.domain.values import ItemNo, SellerId
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.outbox.sql import outbox_list
from mustit_pipeline_tests.integration.catalog.shelf import Shelf, utc_now


@pytest.fixture
def shelf(database: Database) -> Shelf:
    return Shelf(database)


def test_any_two_versions_are_compared_in_either_direction_across_a_deletion(shelf: Shelf) -> None:
    shelf.crawl(1, stock=1, sellingPrice=100)
    shelf.crawl(1, stock=2, sellingPrice=100)
    shelf.delete(1)
    shelf.crawl(1, stock=2, sellingPrice=90)
    with shelf.database.reading() as connection:
        product = find_product(connection, ItemNo(1), None)
        forth = compare(connection, product, 1, 4)
        back = compare(connection, product, 4, 1)
        same = compare(connection, product, 2, 2)
        gone = compare(connection, product, 2, 3)
        first = find_version(connection, product, 1)

    assert (product.seller_id, product.version) == (shelf.seller_id, 4)
    assert [(c.field, c.old, c.new) for c in forth.changes] == [("sellingPrice", 100, 90), ("stock", 1, 2)]
    assert [(c.field, c.old, c.new) for c in back.changes] == [("sellingPrice", 90, 100), ("stock", 2, 1)]
    assert same.changes == []
    assert ("stock", 2, None) in [(c.field, c.old, c.new) for c in gone.changes]
    assert state(first.data)["stock"] == 1


def test_the_history_lists_versions_newest_first_with_what_became_of_their_events(shelf: Shelf) -> None:
    shelf.crawl(1, stock=1)
    shelf.crawl(1, stock=2)
    shelf.delete(1)

    with shelf.database.reading() as connection:
        whole = history.versions(connection, shelf.seller_id, 1, limit=3)
        part = history.versions(connection, shelf.seller_id, 1, limit=2)

    assert [one.change_set.life_cycle for one in whole.rows] == [
        LifeCycle.DELETED,
        LifeCycle.UPDATED,
        LifeCycle.CREATED,
    ]
    assert {one.change_set.name for one in whole.rows} == {"상품 1"}
    assert [one.delivery.superseded for one in whole.rows] == [False, True, True]
    assert whole.rows[0].delivery.status is OutboxStatus.WAITING
    assert (whole.more, part.more, len(part.rows)) == (False, True, 2)


def test_a_number_that_two_sellers_have_needs_the_seller_and_unknown_ones_are_named(shelf: Shelf) -> None:
    other = Shelf(shelf.database, "other")
    shelf.crawl(1)
    other.crawl(1)
    shelf.listing(2)
    with shelf.database.reading() as connection:
        with pytest.raises(Conflict, match="dmont, other"):
            find_product(connection, ItemNo(1), None)
        assert find_product(connection, ItemNo(1), SellerId("other")).seller_id == "other"
        with pytest.raises(NotFound, match="NOT_FOUND_PRODUCT"):
            find_product(connection, ItemNo(3), None)
        with pytest.raises(NotFound, match="NOT_FOUND_PRODUCT"):
            find_product(connection, ItemNo(2), SellerId("other"))
        with pytest.raises(NotFound, match="NOT_FOUND_SELLER"):
            find_product(connection, ItemNo(1), SellerId("unregistered"))
        incomplete = find_product(connection, ItemNo(2), None)
        assert (incomplete.version, incomplete.detail_seen) == (0, False)
        with pytest.raises(NotFound, match="not been published"):
            find_version(connection, incomplete, 1)


def test_changes_are_found_by_seller_time_and_type(shelf: Shelf) -> None:
    other = Shelf(shelf.database, "other")
    shelf.crawl(1, 2, stock=1, sellingPrice=100)
    other.crawl(1)
    shelf.crawl(1, stock=2, sellingPrice=100)
    shelf.crawl(2, stock=1, sellingPrice=90)
    shelf.delete(2)
    shelf.change("""
        UPDATE product_change_sets SET detected_at = now() - interval '2 days' WHERE life_cycle = 'CREATED'
    """)

    def found(
        kind: str | None = None, seller: str | None = None, days: int | None = None, limit: int = 50
    ) -> list[tuple[str, int, int]]:
        with shelf.database.reading() as connection:
            wanted = history.ChangeFilter(
                seller_id=None if seller is None else SellerId(seller),
                since=None if days is None else utc_now() - timedelta(days=days),
                kind=None if kind is None else ChangeKind.parse(kind),
            )
            page = history.changes(connection, wanted, limit)
        assert page.more == (limit < 50)
        return [(one.seller_id, one.item_no, one.version) for one in page.rows]

    newest = [("dmont", 2, 3), ("dmont", 2, 2), ("dmont", 1, 2)]
    assert found()[:3] == newest
    assert sorted(found()[3:]) == [("dmont", 1, 1), ("dmont", 2, 1), ("other", 1, 1)]
    assert found(limit=2) == newest[:2]
    assert found(days=1) == newest
    assert found("price") == [("dmont", 2, 2)]
    assert found("STOCK") == [("dmont", 1, 2)]
    assert found("DELETED") == [("dmont", 2, 3)]
    assert found("CREATED", seller="other") == found(seller="other") == [("other", 1, 1)]
    assert found("IMAGE") == []


def test_bodies_and_events_are_listed_newest_first_by_state_seller_and_time(shelf: Shelf) -> None:
    other = Shelf(shelf.database, "other")
    shelf.crawl(1)
    other.crawl(2)
    shelf.open()
    shelf.put(TaskType.PRODUCT_DETAIL, 1, b"<html>")
    shelf.process()
    shelf.change("UPDATE product_raw_data SET fetched_at = now() - interval '2 days' WHERE seller_id = 'other'")

    def bodies(status: RawStatus | None = None, seller: str | None = None, *, recent: bool = False) -> list[int | None]:
        with shelf.database.reading() as connection:
            page = raw.newest(
                connection,
                status=status,
                seller_id=None if seller is None else SellerId(seller),
                since=utc_now() - timedelta(days=1) if recent else None,
                limit=50,
            )
        assert not page.more
        return [one.item_no for one in page.rows]

    assert bodies() == [1, 1, 1, None, 2, 2, None]
    assert bodies(recent=True) == bodies(seller="dmont") == [1, 1, 1, None]
    assert bodies(RawStatus.FAILED) == bodies(RawStatus.FAILED, "dmont") == [1]
    assert bodies(RawStatus.PROCESSED, "other") == [2, 2, None]
    assert bodies(RawStatus.PROCESSED, "other", recent=True) == []
    with shelf.database.reading() as connection:
        [failed] = raw.newest(connection, status=RawStatus.FAILED, seller_id=None, since=None, limit=1).rows
        assert failed.error_code
        assert failed.error_text
        events = outbox_list.newest(connection, status=None, seller_id=None, limit=1)
        of_other = outbox_list.newest(connection, status=OutboxStatus.WAITING, seller_id=SellerId("other"), limit=9)
        assert outbox_list.newest(connection, status=OutboxStatus.FAILED, seller_id=None, limit=9).rows == []
    assert ([one.item_no for one in events.rows], events.more) == ([2], True)
    assert ([one.item_no for one in of_other.rows], of_other.more) == ([2], False)


def test_a_replay_takes_one_seller_or_a_time_and_tells_how_far_it_is(shelf: Shelf) -> None:
    other = Shelf(shelf.database, "other")
    for one in (shelf, other):
        one.listing(1, 2)
        for item in (1, 2):
            one.options(item)
            one.put(TaskType.PRODUCT_DETAIL, item, b"<html>")
        one.swept()
        for _ in range(4):
            one.process()
        one.detail(1)
        one.detail(2)
        # As if the parser had been taught to read what it could not read before.
        one.change(
            """UPDATE product_raw_data r SET body = good.body FROM product_raw_data good
               WHERE r.status = 'FAILED' AND good.status = 'PENDING' AND good.seller_id = r.seller_id
                 AND good.item_no = r.item_no"""
        )
        one.change("DELETE FROM product_raw_data WHERE status = 'PENDING'")
    shelf.change("UPDATE product_raw_data SET fetched_at = now() - interval '2 days' WHERE seller_id = 'dmont'")
    seen: list[Replaying] = []

    recent = replay_failed(
        shelf.database, seller_id=None, since=utc_now() - timedelta(days=1), now=utc_now, progress=seen.append
    )

    assert {seller: report.versions[LifeCycle.CREATED] for seller, report in recent.reports.items()} == {"other": 2}
    assert (recent.reopened, recent.outdated) == (2, 0)
    assert seen[-1] == Replaying(2, 2)
    too_old = replay_failed(
        shelf.database, seller_id=None, since=None, until=utc_now() - timedelta(days=3), now=utc_now
    )
    assert (too_old.reports, too_old.reopened) == ({}, 0)
    nothing = replay_failed(shelf.database, seller_id=SellerId("other"), since=None, now=utc_now)
    assert (nothing.reports, nothing.reopened) == ({}, 0)
    rest = replay_failed(shelf.database, seller_id=SellerId("dmont"), since=None, now=utc_now)
    assert (rest.reports.keys(), rest.reopened) == ({"dmont"}, 2)
