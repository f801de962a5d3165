"""Crawls that meet bodies which are not what they were: recorded, warned of, and blocked where that is asked for."""

from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from mustit_pipeline.catalog.sql import drift
from mustit_pipeline.catalog.sql.drift import Drift, Sighting
from mustit_pipeline.crawling.estimate import estimate
from mustit_pipeline.crawling.sql import executions
from mustit_pipeline.crawling.sql.executions import MOST_DRIFT, record_drift
from mustit_pipeline.domain.drift import Deviation, DriftKind
from mustit_pipeline.domain.errors import NotFound
from mustit_pipeline.domain.field_paths import FieldPaths
from mustit_pipeline.domain.states import ExecutionStatus, LifeCycle, SweepStatus
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.foundation.failures import MalformedBody
from mustit_pipeline.simulator.control import MarketplaceControl
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.integration.crawling.checks import number
from mustit_pipeline_tests.integration.crawling.conftest import Stock
from mustit_pipeline_tests.integration.crawling.drifting import (
    ITEMS,
    SELLER,
    STOCK,
    DriftingMarketplace,
    unchanged,
    without_stock,
)
from mustit_pipeline_tests.integration.crawls import crawl, register


def recorded(database: Database, *, accepted: bool = False) -> dict[str, Drift]:
    with database.reading() as connection:
        return {
            found.deviation.path: found
            for found in drift.newest(connection, since=None, accepted=accepted, limit=2000).rows
        }


def test_a_crawl_of_bodies_as_they_were_records_nothing(
    database: Database, make_settings: MakeSettings, drifting: DriftingMarketplace
) -> None:
    register(database, SELLER)
    outcome = crawl(database, make_settings(base_url=drifting.url), SELLER)
    assert outcome.report.versions == {LifeCycle.CREATED: 2}
    assert (recorded(database), outcome.stored.drift) == ({}, ())


def test_a_noisy_marketplace_that_did_not_change_records_nothing(
    database: Database, market: MarketplaceControl, stock: Stock
) -> None:
    settings = stock(12, page_size=5)
    market.settings(noise=True)
    assert [crawl(database, settings, "s").stored.drift for _ in range(2)] == [(), ()]
    assert recorded(database) == {}


def test_new_missing_and_retyped_fields_are_recorded_and_the_products_stay(
    database: Database, make_settings: MakeSettings, drifting: DriftingMarketplace
) -> None:
    register(database, SELLER)
    settings = make_settings(base_url=drifting.url, task_max_retries=0)
    crawl(database, settings, SELLER)

    def change(source: str, item_no: int | None, body: Any) -> Any:
        if source == "listing":
            body["items"][0]["badge"] = "단독"
        elif source == "detail":
            body["moduleList"] = [module for module in body["moduleList"] if module["type"] != "ShippingModule"]
        elif item_no == ITEMS[1]:
            body[0]["stock"] = {"seoul": 1}
        return body

    drifting.change = change
    outcome = crawl(database, settings, SELLER)

    found = recorded(database)
    assert {path: (one.deviation.kind, one.count) for path, one in found.items()} == {
        "listing.items.badge": (DriftKind.NEW, 1),
        "detail.ShippingModule": (DriftKind.MISSING, 2),
        "options.stock": (DriftKind.RETYPED, 1),
    }
    assert outcome.stored.drift == tuple(sorted(found))
    retyped = found["options.stock"]
    assert (retyped.deviation.expected, retyped.deviation.observed) == ("number or text", "object")
    assert (retyped.deviation.sample, retyped.seller_id, retyped.item_no) == ('{"seoul": 1}', SELLER, ITEMS[1])
    # The options that cannot be read are a failed fetch; the module that is gone left its fields as they were.
    assert outcome.stored.execution.failed_tasks == 1
    assert outcome.report.versions == {}


def test_drift_that_goes_on_is_counted_and_keeps_its_first_time(
    database: Database, make_settings: MakeSettings, drifting: DriftingMarketplace
) -> None:
    register(database, SELLER)
    drifting.change = without_stock
    settings = make_settings(base_url=drifting.url)
    crawl(database, settings, SELLER)
    once = recorded(database)[STOCK]
    crawl(database, settings, SELLER)
    twice = recorded(database)[STOCK]
    assert (once.count, twice.count) == (2, 4)
    assert twice.first_seen_at == once.first_seen_at <= once.last_seen_at < twice.last_seen_at


def test_of_two_batches_at_once_the_one_stored_last_does_not_turn_the_time_back(database: Database) -> None:
    """It was seen before it was first seen, by a few milliseconds."""
    execution_id = uuid4()
    with database.transaction() as first:
        first.execute(text("SELECT now()"))
        with database.transaction() as second:
            drift.record(second, [sighting(STOCK, execution_id)])
        drift.record(first, [sighting(STOCK, execution_id)])
    found = recorded(database)[STOCK]
    assert (found.count, found.last_seen_at) == (2, found.first_seen_at)


def test_a_body_that_drifted_in_a_blocked_field_is_a_failed_fetch_and_never_a_change(
    database: Database, make_settings: MakeSettings, drifting: DriftingMarketplace
) -> None:
    register(database, SELLER)
    settings = make_settings(base_url=drifting.url, drift_block="options.colour, detail.*.stock")
    crawl(database, settings, SELLER)
    drifting.change = without_stock
    drifting.asked.clear()

    blocked = crawl(database, settings, SELLER)

    assert blocked.report.versions == {}
    assert blocked.stored.execution.failed_tasks == 2
    with database.reading() as connection:
        [failure] = executions.failures_by_reason(connection, blocked.stored)
    assert failure["code"] == "EXTERNAL_BLOCKED_DRIFT"
    assert failure["example"] == f"{STOCK} is missing, and MUSTIT_DRIFT_BLOCK blocks it"
    # Asking again would bring the same.
    assert len([target for target in drifting.asked if "detail" in target]) == 2
    assert recorded(database)[STOCK].count == 2
    drifting.change = unchanged
    assert crawl(database, settings, SELLER).stored.execution.failed_tasks == 0


def test_without_a_block_the_same_body_becomes_a_change_and_a_warning(
    database: Database, make_settings: MakeSettings, drifting: DriftingMarketplace
) -> None:
    register(database, SELLER)
    settings = make_settings(base_url=drifting.url, drift_block="options")
    crawl(database, settings, SELLER)
    drifting.change = without_stock
    warned = crawl(database, settings, SELLER)
    assert warned.stored.execution.failed_tasks == 0
    assert warned.report.versions == {LifeCycle.UPDATED: 2}
    assert warned.stored.drift == (STOCK,)


def test_a_blocked_listing_page_leaves_the_sweep_incomplete(
    database: Database, make_settings: MakeSettings, drifting: DriftingMarketplace
) -> None:
    register(database, SELLER)
    drifting.change = lambda source, _, body: body | {"page": 1} if source == "listing" else body
    outcome = crawl(database, make_settings(base_url=drifting.url, drift_block="listing.page"), SELLER)
    assert outcome.stored.sweep_status is SweepStatus.INCOMPLETE
    assert outcome.report.versions == {}


def test_a_newest_product_that_cannot_be_read_costs_the_others_nothing(
    database: Database, make_settings: MakeSettings, drifting: DriftingMarketplace
) -> None:
    register(database, SELLER)
    settings = make_settings(base_url=drifting.url)

    def nameless(source: str, item_no: int | None, body: Any) -> Any:
        if source == "listing":
            body["items"][0]["name"] = ""
        return body

    drifting.change = nameless
    # The count call shows the newest product alone.
    assert estimate(database, settings, SellerId(SELLER)).products == len(ITEMS)
    outcome = crawl(database, settings, SELLER)
    assert outcome.stored.execution.status is ExecutionStatus.COMPLETED
    assert (outcome.stored.sweep_status, outcome.stored.skipped_items) == (SweepStatus.INCOMPLETE, 1)
    assert outcome.report.versions == {LifeCycle.CREATED: 1}


def test_a_sweep_with_an_item_that_cannot_be_read_is_incomplete_however_many_it_has_seen(
    database: Database, make_settings: MakeSettings, drifting: DriftingMarketplace
) -> None:
    register(database, SELLER)

    def nameless_and_counted_short(source: str, item_no: int | None, body: Any) -> Any:
        if source == "listing":
            body["items"][-1]["name"] = ""
            body["count"] = 1
        return body

    drifting.change = nameless_and_counted_short
    stored = crawl(database, make_settings(base_url=drifting.url), SELLER).stored
    assert (stored.listed_count, stored.skipped_items) == (1, 1)
    assert stored.sweep_status is SweepStatus.INCOMPLETE


def test_listings_that_can_no_longer_be_read_are_recorded_and_kept(
    database: Database, make_settings: MakeSettings, drifting: DriftingMarketplace
) -> None:
    register(database, SELLER)

    def renamed(source: str, item_no: int | None, body: Any) -> Any:
        if source == "listing":
            for item in body["items"]:
                item["itemNumber"] = item.pop("itemNo")
        return body

    drifting.change = renamed
    outcome = crawl(database, make_settings(base_url=drifting.url, task_max_retries=0), SELLER)
    assert recorded(database).keys() == {"listing.items.itemNo", "listing.items.itemNumber"}
    assert outcome.stored.drift == tuple(sorted(recorded(database)))
    assert number(database, "SELECT count(*) FROM product_raw_data WHERE status = 'FAILED'") == 1


@pytest.mark.parametrize(
    ("count", "kind", "observed"), [({"total": 2}, DriftKind.RETYPED, "object"), (None, DriftKind.MISSING, "")]
)
def test_a_count_that_can_no_longer_be_read_is_recorded_with_the_crawl_that_fails_for_it(
    database: Database,
    make_settings: MakeSettings,
    drifting: DriftingMarketplace,
    count: object,
    kind: DriftKind,
    observed: str,
) -> None:
    register(database, SELLER)

    def changed(source: str, item_no: int | None, body: Any) -> Any:
        if source == "listing":
            del body["count"]
        return body if count is None or source != "listing" else body | {"count": count}

    drifting.change = changed
    with pytest.raises(MalformedBody):
        crawl(database, make_settings(base_url=drifting.url, task_max_retries=1, retry_base_seconds=0.01), SELLER)
    [found] = recorded(database).values()
    assert (found.deviation.path, found.deviation.kind, found.deviation.observed) == ("listing.count", kind, observed)
    assert (found.seller_id, found.count) == (SELLER, 2)
    with database.reading() as connection:
        [failed] = executions.newest(connection, SellerId(SELLER), 1).rows
    assert (failed.execution.status, failed.drift) == (ExecutionStatus.FAILED, ("listing.count",))


def sighting(path: str, execution_id: UUID, sample: str = "1") -> Sighting:
    return Sighting(SELLER, ITEMS[0], execution_id, Deviation(path, DriftKind.NEW, "", "number", sample))


def test_made_up_names_fill_neither_the_table_nor_an_execution(
    database: Database, make_settings: MakeSettings, drifting: DriftingMarketplace
) -> None:
    register(database, SELLER)
    execution = crawl(database, make_settings(base_url=drifting.url), SELLER).stored.execution
    for batch in range(4):
        with database.transaction() as connection:
            names = [f"options.f{batch}_{number}" for number in range(400)]
            record_drift(connection, [sighting(name, execution.id.value) for name in names])
    with database.transaction() as connection:
        record_drift(connection, [sighting("options.f0_0", execution.id.value, "2")])
    found = recorded(database)
    # A batch begins under the bound and may end above it, by no more than itself.
    assert len(found) == 1200
    assert (found["options.f0_0"].count, found["options.f0_0"].deviation.sample) == (2, "2")
    with database.reading() as connection:
        assert len(executions.get(connection, execution.id).drift) == MOST_DRIFT


def test_what_was_accepted_is_counted_on_in_silence_and_what_was_forgotten_is_new_again(database: Database) -> None:
    paths = ["options.a", "options.b", "listing.c"]
    for _ in range(2):
        with database.transaction() as connection:
            record_drift(connection, [sighting(path, uuid4()) for path in paths])
            assert drift.count_open(connection) == 3
    with database.transaction() as connection:
        assert drift.accept(connection, FieldPaths("options.*"), utc_now()) == paths[:2]
        assert drift.count_open(connection) == 1
        record_drift(connection, [sighting("options.a", uuid4())])
        assert drift.forget(connection, FieldPaths("options.b")) == ["options.b"]
    assert recorded(database).keys() == {"listing.c"}
    every = recorded(database, accepted=True)
    assert {path: one.count for path, one in every.items()} == {"listing.c": 2, "options.a": 3}
    with database.transaction() as connection:
        record_drift(connection, [sighting("options.b", uuid4())])
        assert drift.count_open(connection) == 2
    with pytest.raises(NotFound), database.transaction() as connection:
        drift.forget(connection, FieldPaths("detail"))
