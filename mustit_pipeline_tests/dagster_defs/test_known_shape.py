"""The check of what bodies look like: judged where all three kinds are known, and silent on what was accepted."""

from typing import Any

import dagster as dg

from mustit_pipeline.catalog.sql import drift
from mustit_pipeline.definitions import defs
from mustit_pipeline.domain.field_paths import FieldPaths
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline_tests.dagster_defs.conftest import SetEnvironment
from mustit_pipeline_tests.integration.crawling.drifting import SELLER, STOCK, drifting_marketplace, without_stock
from mustit_pipeline_tests.integration.crawls import register


def known_shape(instance: dg.DagsterInstance) -> dg.AssetCheckEvaluation:
    job = defs.resolve_job_def("crawl_seller")
    result = job.execute_in_process(instance=instance, partition_key=SELLER)
    [found] = [check for check in result.get_asset_check_evaluations() if check.check_name == "known_shape"]
    return found


def all_three_changed(source: str, item_no: int | None, body: Any) -> Any:
    if source == "listing":
        for item in body["items"]:
            item["coupon"] = 1
    elif source == "options":
        body[0]["grade"] = "A"
    return without_stock(source, item_no, body)


def test_known_shape_tells_of_listing_details_and_options_until_what_they_show_is_accepted(
    database: Database, instance: dg.DagsterInstance, set_environment: SetEnvironment
) -> None:
    register(database, SELLER)
    instance.add_dynamic_partitions("sellers", [SELLER])
    with drifting_marketplace() as market:
        set_environment(base_url=market.url)
        assert known_shape(instance).passed

        market.change = all_three_changed
        warned = known_shape(instance)
        assert (warned.passed, warned.severity) == (False, dg.AssetCheckSeverity.WARN)
        assert warned.metadata["drifted_fields"].value == f"{STOCK}, listing.items.coupon, options.grade"

        accept(database, "listing,options")
        assert known_shape(instance).metadata["drifted_fields"].value == STOCK

        accept(database, "detail")
        assert known_shape(instance).passed


def accept(database: Database, paths: str) -> None:
    with database.transaction() as connection:
        drift.accept(connection, FieldPaths(paths), utc_now())
