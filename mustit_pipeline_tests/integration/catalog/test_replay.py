"""Stored bodies read anew: what the rules make of them now, and nothing that a newer body has overtaken."""

import pytest
from sqlalchemy import text

from mustit_pipeline.catalog import product_data
from mustit_pipeline.catalog.absorbing import read_ahead
from mustit_pipeline.catalog.processing import ProcessingReport
from mustit_pipeline.catalog.reading import USUAL_READING
from mustit_pipeline.catalog.replay import replay_stored
from mustit_pipeline.catalog.sql import raw
from mustit_pipeline.domain.states import LifeCycle, TaskType
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.database import Database
from mustit_pipeline_tests.integration.catalog.shelf import Shelf, assert_whole, utc_now
from mustit_pipeline_tests.unit.marketplace import bodies


def replay(shelf: Shelf) -> ProcessingReport:
    return replay_stored(shelf.database, SellerId(shelf.seller_id), now=utc_now)


def as_if_read_differently(shelf: Shelf, old: str, new: str) -> None:
    """A rule of reading that has changed, told by bodies that say something else than they did."""
    assert shelf.change("UPDATE product_raw_data SET body = replace(body, :old, :new)", old=old, new=new)


def test_under_unchanged_rules_a_replay_reads_everything_and_changes_nothing(database: Database) -> None:
    shelf = Shelf(database)
    shelf.crawl(1, 2)

    report = replay(shelf)

    assert (report.bodies, report.failed_bodies, report.versions.total()) == (5, 0, 0)
    assert shelf.versions(1) == [(1, "CREATED")]
    assert {row["status"] for row in shelf.rows("SELECT status FROM product_raw_data")} == {"PROCESSED"}


def test_a_rule_that_reads_a_stored_body_differently_makes_one_version_of_each_product(database: Database) -> None:
    shelf = Shelf(database)
    shelf.crawl(1, 2, originCountry="케냐")
    as_if_read_differently(shelf, '"brandNameKr"', '"brandNameKr":"새 이름","was"')

    report = replay(shelf)

    assert report.versions.total() == 2
    assert dict(report.changes) == {"PRODUCT_INFO": 2}
    assert [row["version"] for row in shelf.outbox(1)] == [1, 2]
    assert replay(shelf).versions.total() == 0
    assert_whole(database)


def test_a_fix_of_what_is_derived_while_merging_reaches_exactly_the_products_concerned(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = Shelf(database)
    fixed = product_data.image_sources
    monkeypatch.setattr(product_data, "image_sources", lambda markup: ())
    shelf.listing(1, 2)
    for item, markup in ((1, '<img src="https://image.example/1.jpg">'), (2, "<p>그림 없음</p>")):
        described = bodies.detail_info(descriptionMarkUp=markup)
        info = bodies.info(itemNo=item, sellerId=shelf.seller_id)
        body = bodies.detail(ProductInfoModule=info, ProductDetailInfoModule=described)
        shelf.put(TaskType.PRODUCT_DETAIL, item, bodies.encoded(body))
        shelf.options(item)
    shelf.swept()
    shelf.process()
    shelf.end()

    monkeypatch.setattr(product_data, "image_sources", fixed)
    report = replay(shelf)

    assert (dict(report.versions), dict(report.changes)) == ({LifeCycle.UPDATED: 1}, {"DESCRIPTION": 1})
    [newest] = shelf.rows("SELECT item_no, changes FROM product_change_sets WHERE version = 2")
    assert newest["item_no"] == 1
    assert [(change["field"], change["new"]) for change in newest["changes"]] == [
        ("descriptionImages", ["https://image.example/1.jpg"])
    ]
    assert replay(shelf).versions.total() == 0
    assert_whole(database)


def test_an_older_body_never_undoes_what_a_newer_one_said(database: Database) -> None:
    shelf = Shelf(database)
    shelf.crawl(1, sellingPrice=500_000)
    shelf.crawl(1, sellingPrice=400_000)

    report = replay(shelf)

    assert report.bodies == 3
    assert report.versions.total() == 0


def test_a_body_that_can_no_longer_be_read_does_not_bring_back_what_came_before_it(database: Database) -> None:
    """Under a bad parser the newest body failed, and the next replay once took the one before it for the newest."""
    shelf = Shelf(database)
    shelf.crawl(1, sellingPrice=500_000)
    shelf.crawl(1, sellingPrice=400_000)
    newest = "SELECT max(raw_id) FROM product_raw_data WHERE source = 'PRODUCT_DETAIL'"
    assert shelf.change(f"UPDATE product_raw_data SET body = '<html>' WHERE raw_id = ({newest})")

    reports = [replay(shelf), replay(shelf)]

    assert [report.versions.total() for report in reports] == [0, 0]
    assert [report.failed_bodies for report in reports] == [1, 1]
    assert [version for version, _ in shelf.versions(1)] == [1, 2]


def test_a_body_that_failed_is_tried_again_and_nothing_older_in_its_place(database: Database) -> None:
    shelf = Shelf(database)
    shelf.crawl(1)
    shelf.open()
    shelf.put(TaskType.PRODUCT_DETAIL, 1, b"<html>")
    shelf.swept()
    shelf.process()
    shelf.end()

    report = replay(shelf)

    assert (report.bodies, report.failed_bodies) == (3, 1)
    assert shelf.versions(1) == [(1, "CREATED")]


def test_of_listings_only_the_pages_of_the_last_sweep_are_read(database: Database) -> None:
    shelf = Shelf(database)
    shelf.crawl(1, 2)
    shelf.open()
    shelf.listing(1, name="새 이름")
    shelf.swept()
    shelf.process()
    shelf.end()

    report = replay(shelf)

    assert (report.bodies, report.versions.total()) == (5, 0)


def test_a_deleted_product_stays_deleted_whatever_its_bodies_say(database: Database) -> None:
    shelf = Shelf(database)
    shelf.crawl(1, 2)
    shelf.open()
    assert shelf.delete(2) == 1
    shelf.end()
    as_if_read_differently(shelf, '"brandNameKr"', '"brandNameKr":"새 이름","was"')

    replay(shelf)

    assert shelf.versions(2) == [(1, "CREATED"), (2, "DELETED")]
    assert shelf.versions(1) == [(1, "CREATED"), (2, "UPDATED")]


def test_what_was_read_before_a_replay_opened_it_again_does_not_use_the_replay_up(database: Database) -> None:
    """A processor that reads ahead and is overtaken, by another one and by a replay, holds an outdated reading."""
    shelf = Shelf(database)
    shelf.listing(1)
    shelf.process()
    shelf.detail(1)
    ahead = read_ahead(database, SellerId(shelf.seller_id), USUAL_READING, pages=10, bodies=10).attempts
    shelf.process()
    with database.transaction() as connection:
        raw.reopen_newest(connection, shelf.seller_id)
        shown_again = raw.pending(connection, shelf.seller_id, pages=10, products=10)
        connection.execute(text("UPDATE product_raw_data SET status = 'PROCESSED' WHERE source = 'MINISHOP'"))

    with database.transaction() as connection:
        assert raw.still_next(connection, shelf.seller_id, ahead) == set()
        assert raw.still_next(connection, shelf.seller_id, dict.fromkeys(ahead, 1)) == set(ahead)
    assert [row.attempts for row in shown_again] == [1]


def test_another_sellers_bodies_are_left_alone(database: Database) -> None:
    shelf, other = Shelf(database), Shelf(database, "other")
    shelf.crawl(1)
    other.crawl(1)
    as_if_read_differently(shelf, '"brandNameKr"', '"brandNameKr":"새 이름","was"')

    replay(shelf)

    assert other.versions(1) == [(1, "CREATED")]
