"""Bodies that a crawl could not take: kept with their reason, and taken later without a request."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from sqlalchemy import text

from mustit_pipeline.catalog.processing import process
from mustit_pipeline.catalog.reading import reading_rules
from mustit_pipeline.catalog.replay import Replay, replay_failed, replay_stored
from mustit_pipeline.catalog.sql import drift
from mustit_pipeline.domain.field_paths import FieldPaths
from mustit_pipeline.domain.limits import RAW_MAX_ATTEMPTS
from mustit_pipeline.domain.states import LifeCycle, SweepStatus
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.settings import Settings
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.integration.catalog.shelf import assert_whole
from mustit_pipeline_tests.integration.crawling.checks import check_outcomes, number
from mustit_pipeline_tests.integration.crawling.drifting import (
    ITEMS,
    SELLER,
    STOCK,
    Change,
    DriftingMarketplace,
    unchanged,
    without_stock,
)
from mustit_pipeline_tests.integration.crawls import CrawlOutcome, crawl, register

BLOCKED = "EXTERNAL_BLOCKED_DRIFT"
MOST_PRODUCTS = 1000


def page_with_an_absurd_count(source: str, item_no: int | None, body: Any) -> Any:
    """The page only: a crawl whose count call is refused has no pages."""
    if source == "listing" and len(body["items"]) == len(ITEMS):
        body["count"] = MOST_PRODUCTS + 1
        for entry in body["items"]:
            entry["tagList"] = [{"title": "새 태그"}]
    return body


def crawled_into_a_refusal(database: Database, settings: Settings, drifting: DriftingMarketplace) -> CrawlOutcome:
    """A good crawl, and one that meets what its settings refuse."""
    register(database, SELLER)
    crawl(database, settings, SELLER)
    drifting.change = page_with_an_absurd_count if not settings.drift_block else without_stock
    refused = crawl(database, settings, SELLER)
    drifting.asked.clear()
    return refused


def replay(database: Database, settings: Settings) -> Replay:
    rules = reading_rules(database, settings)
    return replay_failed(database, seller_id=SellerId(SELLER), since=None, now=utc_now, reading_rules=rules)


def failed_bodies(database: Database) -> list[Any]:
    query = text("""
        SELECT r.source, r.item_no, r.page_no, r.attempts, r.error_code, r.error_text = t.error_text AS same_reason
        FROM product_raw_data r JOIN crawler_tasks t USING (task_id) WHERE r.status = 'FAILED' ORDER BY r.item_no
    """)
    with database.reading() as connection:
        return [tuple(row) for row in connection.execute(query)]


def negative_stock(source: str, item_no: int | None, body: Any) -> Any:
    """The first product's detail and the second one's options cannot be."""
    if source == "detail" and item_no == ITEMS[0]:
        body["moduleList"][1]["data"]["stock"] = -1
    if source == "options" and item_no == ITEMS[1]:
        body[0]["stock"] = -1
    return body


def nameless(source: str, item_no: int | None, body: Any) -> Any:
    if source == "detail":
        body["moduleList"][1]["data"]["itemName"] = " "
    return body


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        (negative_stock, [("PRODUCT_DETAIL", ITEMS[0]), ("PRODUCT_OPTION", ITEMS[1])]),
        (nameless, [("PRODUCT_DETAIL", item) for item in ITEMS]),
    ],
)
def test_a_value_that_cannot_be_is_a_failed_fetch_whose_body_is_kept_and_changes_nothing(
    database: Database,
    make_settings: MakeSettings,
    drifting: DriftingMarketplace,
    change: Change,
    refused: list[tuple[str, int]],
) -> None:
    settings = make_settings(base_url=drifting.url, task_max_retries=0)
    register(database, SELLER)
    crawl(database, settings, SELLER)
    drifting.change = change

    outcome = crawl(database, settings, SELLER)

    check_outcomes(database, outcome.stored.execution.id)
    assert (outcome.stored.execution.failed_tasks, outcome.report.versions) == (2, {})
    assert [row[:2] for row in failed_bodies(database)] == refused
    assert {row[4] for row in failed_bodies(database)} == {"EXTERNAL_MALFORMED_BODY"}
    assert_whole(database)


def of_another_shape(body: Any) -> Any:
    return {"result": "OK", "data": body}


def impossible(body: Any) -> Any:
    """Of a listing every item: one alone would be skipped."""
    if isinstance(body, list):
        return [entry | {"stock": -1} for entry in body]
    if "items" in body:
        return body | {"items": [entry | {"price": "-1"} for entry in body["items"]]}
    body["moduleList"][1]["data"]["stock"] = -1
    return body


def with_a_coupon(body: Any) -> Any:
    if isinstance(body, list):
        return [entry | {"coupon": 1} for entry in body]
    if "items" in body:
        return body | {"coupon": 1}
    body["moduleList"][1]["data"]["coupon"] = 1
    return body


@pytest.mark.parametrize(
    ("refuse", "code"),
    [
        (of_another_shape, "EXTERNAL_MALFORMED_BODY"),
        (impossible, "EXTERNAL_MALFORMED_BODY"),
        (with_a_coupon, BLOCKED),
    ],
)
@pytest.mark.parametrize("source", ["listing", "detail", "options"])
def test_whatever_is_refused_and_for_whatever_reason_is_kept_as_it_came(
    database: Database,
    make_settings: MakeSettings,
    drifting: DriftingMarketplace,
    source: str,
    refuse: Callable[[Any], Any],
    code: str,
) -> None:
    coupons = "listing.coupon, detail.ProductInfoModule.coupon, options.coupon"
    settings = make_settings(base_url=drifting.url, drift_block=coupons, task_max_retries=1)
    register(database, SELLER)
    sent: list[bytes] = []

    def changed(asked: str, item_no: int | None, body: Any) -> Any:
        # A crawl whose count call is refused has no pages.
        counts = asked == "listing" and len(body["items"]) < len(ITEMS)
        if asked != source or counts or item_no == ITEMS[1]:
            return body
        sent.append(orjson.dumps(refuse(body)))
        return sent[-1]

    drifting.change = changed

    outcome = crawl(database, settings, SELLER)

    check_outcomes(database, outcome.stored.execution.id)
    assert outcome.stored.execution.failed_tasks == 1
    kept = text("SELECT body, error_code FROM product_raw_data WHERE status = 'FAILED'")
    with database.reading() as connection:
        assert [tuple(row) for row in connection.execute(kept)] == [(sent[-1].decode(), code)]


def test_what_drift_has_blocked_is_kept_and_stays_out_for_as_long_as_it_is_blocked(
    database: Database, make_settings: MakeSettings, drifting: DriftingMarketplace
) -> None:
    settings = make_settings(base_url=drifting.url, drift_block=STOCK)

    blocked = crawled_into_a_refusal(database, settings, drifting)

    check_outcomes(database, blocked.stored.execution.id)
    assert (blocked.stored.execution.failed_tasks, blocked.report.versions) == (2, {})
    # Read when it came, and once more by the processing of the same crawl.
    assert failed_bodies(database) == [("PRODUCT_DETAIL", item, None, 2, BLOCKED, True) for item in ITEMS]
    rules = reading_rules(database, settings)
    tries = [process(database, SellerId(SELLER), now=utc_now, reading_rules=rules).failed_bodies for _ in range(3)]
    assert tries == [2, 0, 0]
    assert {row[3] for row in failed_bodies(database)} == {RAW_MAX_ATTEMPTS}
    again = replay(database, settings)
    assert (again.reopened, again.reports[SELLER].failed_bodies, again.reports[SELLER].versions) == (2, 2, {})
    assert [row[4:] for row in failed_bodies(database)] == [(BLOCKED, True)] * 2
    assert drifting.asked == []


@pytest.mark.parametrize("newest", [False, True], ids=["failed bodies", "newest bodies"])
@pytest.mark.parametrize("how", ["accepted", "no longer blocked"])
def test_what_drift_has_blocked_becomes_exactly_its_change_once_it_no_longer_is(
    database: Database, make_settings: MakeSettings, drifting: DriftingMarketplace, how: str, newest: bool
) -> None:
    settings = make_settings(base_url=drifting.url, drift_block=STOCK)
    crawled_into_a_refusal(database, settings, drifting)
    if how == "accepted":
        with database.transaction() as connection:
            drift.accept(connection, FieldPaths(STOCK), utc_now())
    else:
        settings = make_settings(base_url=drifting.url)

    if newest:
        rules = reading_rules(database, settings)
        report = replay_stored(database, SellerId(SELLER), now=utc_now, reading_rules=rules)
    else:
        report = replay(database, settings).reports[SELLER]

    assert (report.failed_bodies, report.versions, report.changes) == (0, {LifeCycle.UPDATED: 2}, {"STOCK": 2})
    assert failed_bodies(database) == []
    assert_whole(database)
    assert drifting.asked == []
    # And the next crawl takes the same at once.
    after = crawl(database, settings, SELLER)
    assert (after.stored.execution.failed_tasks, after.report.versions) == (0, {})


def test_a_drift_that_differs_from_the_accepted_one_is_blocked(
    database: Database, make_settings: MakeSettings, drifting: DriftingMarketplace
) -> None:
    settings = make_settings(base_url=drifting.url, drift_block=STOCK)
    crawled_into_a_refusal(database, settings, drifting)
    with database.transaction() as connection:
        drift.accept(connection, FieldPaths(STOCK), utc_now())

    def listed_stock(source: str, item_no: int | None, body: Any) -> Any:
        if source == "detail":
            body["moduleList"][1]["data"]["stock"] = True
        return body

    drifting.change = listed_stock
    assert crawl(database, settings, SELLER).stored.execution.failed_tasks == 2


def test_a_refused_body_that_a_newer_one_has_overtaken_stays_out(
    database: Database, make_settings: MakeSettings, drifting: DriftingMarketplace
) -> None:
    settings = make_settings(base_url=drifting.url, drift_block=STOCK)
    crawled_into_a_refusal(database, settings, drifting)
    drifting.change = unchanged
    assert crawl(database, settings, SELLER).report.versions == {}

    done = replay(database, make_settings(base_url=drifting.url))

    assert (done.reports, done.reopened, done.outdated) == ({}, 0, 2)


def test_a_product_whose_first_detail_was_refused_is_made_by_the_replay(
    database: Database, make_settings: MakeSettings, drifting: DriftingMarketplace
) -> None:
    register(database, SELLER)
    drifting.change = without_stock
    first = crawl(database, make_settings(base_url=drifting.url, drift_block=STOCK), SELLER)
    assert (first.stored.sweep_status, first.report.versions) == (SweepStatus.COMPLETE, {})
    drifting.asked.clear()

    done = replay(database, make_settings(base_url=drifting.url))

    assert done.reports[SELLER].versions == {LifeCycle.CREATED: 2}
    assert drifting.asked == []
    assert_whole(database)


def test_a_refused_page_tells_of_its_products_later_and_its_sweep_stays_incomplete(
    database: Database, make_settings: MakeSettings, drifting: DriftingMarketplace
) -> None:
    settings = make_settings(base_url=drifting.url, seller_most_products=MOST_PRODUCTS, task_max_retries=1)
    refused = crawled_into_a_refusal(database, settings, drifting)
    check_outcomes(database, refused.stored.execution.id)
    assert (refused.stored.sweep_status, refused.report.versions) == (SweepStatus.INCOMPLETE, {})
    assert failed_bodies(database) == [("MINISHOP", None, 0, 2, "EXTERNAL_MALFORMED_BODY", True)]
    tasks = "SELECT count(*) FROM crawler_tasks"
    planned = number(database, tasks)

    done = replay(database, make_settings(base_url=drifting.url))

    assert (done.reports[SELLER].versions, done.reports[SELLER].changes) == (
        {LifeCycle.UPDATED: 2},
        {"PRODUCT_INFO": 2},
    )
    assert number(database, "SELECT count(*) FROM products WHERE deleted_at IS NOT NULL OR absent_sweeps > 0") == 0
    sweeps = "SELECT count(*) FROM crawling_schedule_executions WHERE sweep_status = 'INCOMPLETE'"
    assert (number(database, sweeps), number(database, tasks)) == (1, planned)
    assert drifting.asked == []
    assert_whole(database)
