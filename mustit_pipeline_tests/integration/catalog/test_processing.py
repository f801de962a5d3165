"""Raw bodies become versions: in order, once per execution, all or nothing."""

import threading
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import event, text
from sqlalchemy.exc import DBAPIError

from mustit_pipeline.catalog.processing import BatchSize, ProcessingReport, absorb_waiting, process
from mustit_pipeline.catalog.replay import replay_failed
from mustit_pipeline.crawling.sql.tasks import PlannedTask, add
from mustit_pipeline.domain.states import LifeCycle, TaskType
from mustit_pipeline.domain.values import ItemNo, SellerId
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.marketplace.endpoints import Endpoints
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.integration.catalog.shelf import Shelf, assert_whole, utc_now


@pytest.fixture
def shelf(database: Database) -> Shelf:
    return Shelf(database)


def test_a_complete_product_becomes_one_version_with_its_change_set_and_outbox_row(shelf: Shelf) -> None:
    report = shelf.crawl(1, 2)

    assert report.versions == {LifeCycle.CREATED: 2}
    assert shelf.versions(1) == [(1, "CREATED")]
    assert [(row["version"], row["event_type"], row["status"]) for row in shelf.outbox(1)] == [
        (1, "PRODUCT_CREATED", "WAITING")
    ]
    assert_whole(shelf.database)


def test_a_product_with_empty_options_is_complete_and_one_without_an_options_answer_is_not(shelf: Shelf) -> None:
    shelf.listing(1, 2)
    for item in (1, 2):
        shelf.detail(item)
    shelf.options(1)
    shelf.swept()

    assert shelf.process().versions == {LifeCycle.CREATED: 1}
    assert shelf.versions(2) == []
    assert shelf.outbox(2) == []
    assert shelf.rows("SELECT version, complete FROM products WHERE item_no = 2") == [{"version": 0, "complete": False}]
    assert_whole(shelf.database)


def test_a_detail_and_options_without_their_listing_publish_nothing(shelf: Shelf) -> None:
    shelf.listing(1)
    shelf.change("DELETE FROM product_raw_data")
    shelf.detail(1)
    shelf.options(1)
    shelf.swept()
    assert shelf.process().versions == {}

    shelf.listing(1)

    assert shelf.process().versions == {LifeCycle.CREATED: 1}
    assert_whole(shelf.database)


def test_a_listing_is_processed_before_a_detail_that_was_stored_earlier(shelf: Shelf) -> None:
    shelf.crawl(1)
    shelf.open()
    shelf.detail(1, discountPrice=300)
    shelf.listing(1, price="400")
    shelf.swept()
    shelf.process()

    (newest,) = shelf.rows("SELECT changes FROM product_change_sets WHERE version = 2")
    assert newest["changes"] == [{"type": "PRICE", "field": "discountPrice", "old": 565100, "new": 300}]


def test_a_detail_of_a_product_that_no_listing_has_shown_is_kept_for_another_try(shelf: Shelf) -> None:
    shelf.detail(5)
    shelf.process()
    assert shelf.rows("SELECT status, error_code FROM product_raw_data") == [
        {"status": "FAILED", "error_code": "INVARIANT_PRODUCT_UNLISTED"}
    ]

    shelf.listing(5)
    shelf.options(5)
    shelf.swept()

    assert shelf.process().versions == {LifeCycle.CREATED: 1}


def test_batches_that_split_a_products_bodies_still_make_one_version(shelf: Shelf) -> None:
    shelf.crawl(1, 2, 3)
    shelf.open()
    for item in (1, 2, 3):
        shelf.listing(item, price=f"{item},000")
        shelf.detail(item, stock=40)
        shelf.options(item, {"optionNo": item})
    shelf.swept()

    report = shelf.process(BatchSize(pages=1, bodies=1, versions=1))

    assert report.versions == {LifeCycle.UPDATED: 3}
    assert report.changes == {"OPTION": 3, "PRICE": 3, "STOCK": 3}
    assert [shelf.versions(item) for item in (1, 2, 3)] == [[(1, "CREATED"), (2, "UPDATED")]] * 3
    assert_whole(shelf.database)


def test_a_product_waits_for_its_own_planned_fetches_and_for_no_others(
    shelf: Shelf, make_settings: MakeSettings
) -> None:
    endpoints = Endpoints.from_settings(make_settings(base_url="http://127.0.0.1:1"))
    shelf.listing(1, 2)
    with shelf.database.transaction() as connection:
        add(connection, shelf.stored.home, [PlannedTask(endpoints.detail(ItemNo(1)), 10, item_no=1)])
    for item in (1, 2):
        shelf.detail(item)
        shelf.options(item)

    assert shelf.process().versions == {LifeCycle.CREATED: 1}
    assert (shelf.versions(1), shelf.versions(2)) == ([], [(1, "CREATED")])

    shelf.change("UPDATE crawler_tasks SET status = 'FAILED'")

    assert shelf.process().versions == {LifeCycle.CREATED: 1}
    assert_whole(shelf.database)


def test_what_an_earlier_crawl_left_behind_goes_out_in_one_version_with_what_the_next_one_finds(shelf: Shelf) -> None:
    shelf.crawl(1)
    shelf.open()
    shelf.listing(1, price="400")
    shelf.end()
    shelf.open()

    assert shelf.process().versions == {}

    shelf.listing(1, price="300")
    shelf.detail(1, stock=8)
    shelf.swept()

    assert shelf.process().versions == {LifeCycle.UPDATED: 1}
    assert shelf.versions(1) == [(1, "CREATED"), (2, "UPDATED")]


def test_a_product_listed_twice_in_one_sweep_makes_one_version_and_the_rest_waits_for_the_next(shelf: Shelf) -> None:
    shelf.listing(1)
    shelf.detail(1)
    shelf.options(1)
    assert shelf.process().versions == {LifeCycle.CREATED: 1}
    shelf.listing(1, price="400")
    shelf.swept()

    assert shelf.process().versions == {}
    shelf.end()
    shelf.open()
    shelf.listing(1, price="400")

    assert shelf.process().versions == {LifeCycle.UPDATED: 1}


def test_a_body_that_cannot_be_read_keeps_its_reason_and_holds_up_no_other(shelf: Shelf) -> None:
    shelf.listing(1, 2)
    shelf.put(TaskType.PRODUCT_DETAIL, 1, b'{"moduleList": []}')
    shelf.detail(2)
    shelf.options(1)
    shelf.options(2)
    shelf.swept()

    report = shelf.process()

    assert (report.failed_bodies, report.versions) == (1, {LifeCycle.CREATED: 1})
    (failed,) = shelf.rows(
        "SELECT item_no, error_code, error_text, attempts FROM product_raw_data WHERE status = 'FAILED'"
    )
    assert (failed["item_no"], failed["attempts"]) == (1, 1)
    assert failed["error_code"].startswith("EXTERNAL_")
    assert "ProductInfoModule is missing" in failed["error_text"]


def test_a_failed_body_is_retried_twice_and_then_only_by_hand(shelf: Shelf) -> None:
    shelf.listing(1)
    shelf.options(1)
    shelf.put(TaskType.PRODUCT_DETAIL, 1, b'{"moduleList": []}')
    shelf.swept()
    for _ in range(5):
        shelf.process()
    assert shelf.rows("SELECT attempts FROM product_raw_data WHERE status = 'FAILED'") == [{"attempts": 3}]

    process(shelf.database, SellerId(shelf.seller_id), now=utc_now, raw_attempts=4)
    assert shelf.rows("SELECT attempts FROM product_raw_data WHERE status = 'FAILED'") == [{"attempts": 4}]

    shelf.detail(1)
    shelf.change("""
        UPDATE product_raw_data SET body = (SELECT body FROM product_raw_data ORDER BY raw_id DESC LIMIT 1)
        WHERE status = 'FAILED'
    """)
    shelf.change("DELETE FROM product_raw_data WHERE status = 'PENDING'")
    done = replay_failed(shelf.database, seller_id=SellerId(shelf.seller_id), since=None, now=utc_now)

    assert (done.reopened, done.outdated) == (1, 0)
    assert done.reports[shelf.seller_id].versions == {LifeCycle.CREATED: 1}


def test_a_failed_body_that_a_newer_one_has_overtaken_is_never_processed(shelf: Shelf) -> None:
    shelf.crawl(1)
    shelf.open()
    shelf.detail(1, stock=5)
    shelf.change("UPDATE product_raw_data SET status = 'FAILED', attempts = 3 WHERE status = 'PENDING'")
    shelf.end()
    shelf.crawl(1, stock=6)

    done = replay_failed(shelf.database, seller_id=None, since=None, now=utc_now)

    assert (done.reports, done.reopened, done.outdated) == ({}, 0, 1)
    assert shelf.rows("SELECT data::json ->> 'stock' AS stock FROM products") == [{"stock": "6"}]


@pytest.mark.parametrize("pages_at_once", [1, 2])
@pytest.mark.parametrize("newest", [0, 1])
def test_of_two_pages_that_show_a_product_the_one_seen_later_is_right_whichever_is_stored_first(
    shelf: Shelf, newest: int, pages_at_once: int
) -> None:
    """It moved to the next page while the sweep went on, and its price changed."""
    began = utc_now() - timedelta(minutes=1)
    for stored in (0, 1):
        seen_at = began + timedelta(seconds=30 if stored == newest else 0)
        shelf.listing(1, 2, fetched_at=seen_at, price="200" if stored == newest else "100")
    for item in (1, 2):
        shelf.detail(item, discountPrice=None)
        shelf.options(item)
    shelf.swept()

    shelf.process(BatchSize(pages=pages_at_once))

    prices = shelf.rows("SELECT CAST(data AS json) ->> 'discountPrice' AS price FROM products")
    assert [row["price"] for row in prices] == ["200", "200"]


def test_a_page_that_is_stored_after_a_later_one_was_processed_undoes_nothing(shelf: Shelf) -> None:
    """Its worker took its time; what both pages show is what the later one said, and the rest is still new."""
    began = utc_now() - timedelta(minutes=1)
    shelf.listing(1, fetched_at=began + timedelta(seconds=30), price="200")
    shelf.process()
    shelf.listing(1, 2, fetched_at=began, price="100")
    for item in (1, 2):
        shelf.detail(item, discountPrice=None)
        shelf.options(item)
    shelf.swept()

    shelf.process()

    prices = shelf.rows("SELECT CAST(data AS json) ->> 'discountPrice' AS price FROM products ORDER BY item_no")
    assert [row["price"] for row in prices] == ["200", "100"]


def test_the_pages_of_the_next_sweep_are_right_whatever_the_clock_of_the_last_one_said(shelf: Shelf) -> None:
    shelf.listing(1, fetched_at=utc_now() + timedelta(days=1), price="100")
    shelf.process()
    shelf.end()
    shelf.open()
    shelf.listing(1, price="200")
    shelf.detail(1, discountPrice=None)
    shelf.options(1)
    shelf.swept()

    shelf.process()

    assert shelf.rows("SELECT CAST(data AS json) ->> 'discountPrice' AS price FROM products") == [{"price": "200"}]


def test_a_detail_of_another_seller_is_never_absorbed(shelf: Shelf) -> None:
    shelf.listing(1)
    shelf.detail(1, sellerId="another")
    shelf.options(1)
    shelf.swept()

    assert shelf.process().versions == {}
    assert shelf.rows("SELECT error_code FROM product_raw_data WHERE status = 'FAILED'") == [
        {"error_code": "EXTERNAL_WRONG_SELLER"}
    ]


def test_a_difference_of_case_alone_makes_no_other_seller(shelf: Shelf) -> None:
    assert shelf.crawl(1, sellerId=shelf.seller_id.upper()).versions == {LifeCycle.CREATED: 1}


@pytest.mark.parametrize("absent", [None, ""])
def test_a_price_that_a_source_no_longer_names_stays_what_it_was(shelf: Shelf, absent: str | None) -> None:
    prices = (
        "SELECT CAST(data AS json) ->> 'normalPrice' AS n, CAST(data AS json) ->> 'discountPrice' AS d FROM products"
    )
    shelf.crawl(1)
    shelf.open()
    # The listing's word on both prices is the newer one, and differs from the detail's.
    shelf.listing(1, price="100", originalPrice="200")
    shelf.swept()
    assert shelf.process().versions == {LifeCycle.UPDATED: 1}
    shelf.end()
    known = shelf.rows(prices)
    assert known == [{"n": "200", "d": "100"}]

    for _ in range(2):
        shelf.open()
        shelf.listing(1, price=absent, originalPrice=absent, normalPrice=absent)
        shelf.detail(1, normalPrice=absent, sellingPrice=absent, discountPrice=absent)
        shelf.swept()
        assert shelf.process().versions == {}
        shelf.end()
    assert shelf.rows(prices) == known

    shelf.open()
    shelf.listing(1, price=absent, originalPrice="300")
    shelf.detail(1, discountPrice=absent, stock=1)
    shelf.swept()
    assert shelf.process().changes == {"PRICE": 1, "STOCK": 1}
    assert shelf.rows(prices) == [{"n": "300", "d": "100"}]


def test_two_processors_of_one_seller_at_once_make_nothing_twice(shelf: Shelf) -> None:
    small = BatchSize(bodies=3, versions=3)
    items = range(1, 31)
    shelf.listing(*items)
    for item in items:
        shelf.detail(item)
        shelf.options(item)
    shelf.swept()
    reports: list[ProcessingReport] = []
    threads = [threading.Thread(target=lambda: reports.append(shelf.process(small))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert sum(report.versions[LifeCycle.CREATED] for report in reports) == 30
    assert sum(report.bodies for report in reports) == 61
    assert_whole(shelf.database)


def test_a_refused_outbox_row_leaves_no_version_and_what_was_read_is_published_later(shelf: Shelf) -> None:
    shelf.change("ALTER TABLE product_outbox ADD CONSTRAINT refused CHECK (item_no <> 2)")
    with pytest.raises(DBAPIError, match="refused"):
        shelf.crawl(1, 2)

    assert shelf.rows("SELECT DISTINCT status FROM product_raw_data") == [{"status": "PROCESSED"}]
    assert shelf.rows("SELECT DISTINCT version FROM products") == [{"version": 0}]
    assert (shelf.versions(1), shelf.outbox(1)) == ([], [])
    assert_whole(shelf.database)

    shelf.change("ALTER TABLE product_outbox DROP CONSTRAINT refused")
    assert shelf.process().versions == {LifeCycle.CREATED: 2}
    assert_whole(shelf.database)


def test_a_connection_that_dies_before_the_commit_leaves_nothing_half(shelf: Shelf) -> None:
    shelf.listing(1)
    shelf.detail(1)
    shelf.options(1)
    shelf.swept()
    killed: list[int] = []

    def kill(connection: object, cursor: Any, statement: str, *_: object) -> None:
        if "INSERT INTO product_outbox" in statement and not killed:
            pid = cursor.connection.info.backend_pid
            killed.append(pid)
            with shelf.database.engine.connect() as other:
                other.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})

    event.listen(shelf.database.engine, "after_cursor_execute", kill)
    try:
        with pytest.raises(DBAPIError):
            shelf.process()
    finally:
        event.remove(shelf.database.engine, "after_cursor_execute", kill)

    assert killed
    assert (shelf.versions(1), shelf.outbox(1)) == ([], [])
    assert_whole(shelf.database)
    assert shelf.process().versions == {LifeCycle.CREATED: 1}
    assert_whole(shelf.database)


def test_two_passes_at_once_absorb_every_body_once_and_listings_before_what_they_list(shelf: Shelf) -> None:
    items = range(1, 21)
    for item in items:
        shelf.detail(item, discountPrice=100)
        shelf.options(item)
        shelf.detail(item, discountPrice=200)
    for start in range(1, 21, 4):
        shelf.listing(*range(start, start + 4))
    shelf.swept()
    begin = threading.Barrier(2)
    absorbed: list[int] = []

    def absorb() -> None:
        begin.wait()
        report = absorb_waiting(shelf.database, SellerId(shelf.seller_id), batch=BatchSize(pages=1, bodies=3))
        absorbed.append(report.bodies - report.failed_bodies)

    passes = [threading.Thread(target=absorb) for _ in range(2)]
    for one in passes:
        one.start()
    for one in passes:
        one.join()

    assert sum(absorbed) == 65
    assert shelf.rows("SELECT DISTINCT status, attempts FROM product_raw_data") == [
        {"status": "PROCESSED", "attempts": 1}
    ]
    # Transactions are numbered in the order in which they first write, which each does with the seller's lock.
    (order,) = shelf.rows("""
        SELECT max(xmin::text::bigint) FILTER (WHERE source = 'MINISHOP') AS last_listing,
               min(xmin::text::bigint) FILTER (WHERE source <> 'MINISHOP') AS first_product
        FROM product_raw_data
    """)
    assert order["last_listing"] < order["first_product"]
    assert shelf.process().versions == {LifeCycle.CREATED: 20}
    newest = shelf.rows("SELECT DISTINCT CAST(data AS jsonb) ->> 'discountPrice' AS price FROM products")
    assert newest == [{"price": "200"}]
    assert_whole(shelf.database)


def test_bodies_that_another_pass_absorbs_after_they_were_read_are_absorbed_once(shelf: Shelf) -> None:
    shelf.listing(1)
    shelf.process()
    for price in (100, 200):
        shelf.detail(1, discountPrice=price)
    shelf.options(1)
    shelf.swept()
    seller_id = SellerId(shelf.seller_id)
    locks: list[str] = []
    others: list[int] = []

    def stop(report: ProcessingReport) -> None:
        others.append(report.bodies)
        raise KeyboardInterrupt

    def absorb_the_first_elsewhere(_: object, __: object, statement: str, *___: object) -> None:
        if "pg_advisory_xact_lock(" in statement:
            locks.append(statement)
            # The second lock is for what has been read.
            if len(locks) == 2:
                with pytest.raises(KeyboardInterrupt):
                    shelf.process(batch=BatchSize(bodies=1), progress=stop)

    event.listen(shelf.database.engine, "before_cursor_execute", absorb_the_first_elsewhere)
    report = absorb_waiting(shelf.database, seller_id)
    event.remove(shelf.database.engine, "before_cursor_execute", absorb_the_first_elsewhere)

    assert (others, report.bodies) == ([1], 2)
    assert shelf.rows("SELECT DISTINCT status, attempts FROM product_raw_data") == [
        {"status": "PROCESSED", "attempts": 1}
    ]
    assert shelf.process().versions == {LifeCycle.CREATED: 1}
    assert shelf.rows("SELECT CAST(data AS jsonb) ->> 'discountPrice' AS price FROM products") == [{"price": "200"}]
    assert_whole(shelf.database)


def test_a_pass_that_is_killed_between_two_batches_or_within_one_loses_nothing(shelf: Shelf) -> None:
    shelf.listing(*range(1, 7))
    for item in range(1, 7):
        shelf.detail(item)
        shelf.options(item)
    shelf.swept()
    marked: list[str] = []

    def lose_the_connection(_: object, cursor: Any, statement: str, *__: object) -> None:
        if "SET status" in statement and "WHERE raw_id = ANY(CAST" in statement:
            marked.append(statement)
            if len(marked) == 3:
                cursor.connection.close()

    event.listen(shelf.database.engine, "before_cursor_execute", lose_the_connection)
    with pytest.raises(DBAPIError):
        absorb_waiting(shelf.database, SellerId(shelf.seller_id), batch=BatchSize(pages=1, bodies=4))
    event.remove(shelf.database.engine, "before_cursor_execute", lose_the_connection)

    states = "SELECT status, count(*) AS n FROM product_raw_data GROUP BY status ORDER BY status"
    assert shelf.rows(states) == [{"status": "PENDING", "n": 8}, {"status": "PROCESSED", "n": 5}]
    assert shelf.process().versions == {LifeCycle.CREATED: 6}
    assert shelf.rows("SELECT DISTINCT status, attempts FROM product_raw_data") == [
        {"status": "PROCESSED", "attempts": 1}
    ]
    assert_whole(shelf.database)
