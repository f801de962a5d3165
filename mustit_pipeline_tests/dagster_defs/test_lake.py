"""The assets of the lake: a day materialized, judged, backfilled and scheduled."""

from datetime import date, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyarrow import parquet
from sqlalchemy import text

from mustit_pipeline.definitions import defs
from mustit_pipeline.defs.lake.exports import largest_sellers
from mustit_pipeline.defs.partitions import DAY_CATALOG, DAY_CHANGES, DAY_METRICS, exports_a_day, is_of_a_day
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.lake.columns import PRODUCT_CATALOG
from mustit_pipeline_tests.dagster_defs.conftest import SetEnvironment, failure, materialized
from mustit_pipeline_tests.integration.crawls import register
from mustit_pipeline_tests.integration.lake.history import DAY, change, in_seoul, publish

SELLER = "한글 & a/b 50%"
BEFORE = DAY - timedelta(days=1)


@pytest.fixture
def two_days(database: Database, set_environment: SetEnvironment, tmp_path: Path) -> Path:
    """Products of two sellers over two days; says where the lake is."""
    register(database, SELLER, "dmont")
    for seller_id in (SELLER, "dmont"):
        publish(database, seller_id, 1, 1, in_seoul(BEFORE, "12:00"), "CREATED")
    publish(database, "dmont", 1, 2, in_seoul(DAY, "12:00"), changes=[change("STOCK", "stock", 3, 0)], stock=0)
    set_environment(lake_uri=tmp_path / "lake")
    return tmp_path / "lake"


def export(instance: dg.DagsterInstance, day: date) -> dg.ExecuteInProcessResult:
    return defs.resolve_job_def("export_days").execute_in_process(
        instance=instance, partition_key=day.isoformat(), raise_on_error=False
    )


def rows(lake: Path, asset: str, day: date) -> list[dict[str, Any]]:
    found = sorted((lake / asset / f"day={day}").rglob("*.parquet"))
    return [row for path in found for row in parquet.ParquetFile(path).read().to_pylist()]


def test_two_past_days_are_backfilled_and_a_day_that_is_written_again_is_the_same(
    two_days: Path, instance: dg.DagsterInstance
) -> None:
    versions: list[str] = []
    for day in (BEFORE, DAY, DAY):
        result = export(instance, day)
        assert result.success
        written = materialized(result)
        catalog, changes = written["product_catalog"], written["product_changes"]
        assert catalog.partition == changes.partition == day.isoformat()
        assert catalog.metadata["path"].value == f"{two_days}/product_catalog/day={day}"
        assert catalog.metadata["dagster/partition_row_count"].value == 2
        assert catalog.metadata["sellers"].value == catalog.metadata["files"].value == 2
        assert changes.metadata["dagster/partition_row_count"].value == (2 if day == BEFORE else 1)
        checks = [(one.check_name, one.passed) for one in result.get_asset_check_evaluations()]
        assert checks == [("every_row_arrived", True), ("no_key_twice", True)] * 2
        versions.append((catalog.tags or {})["dagster/data_version"])

    assert versions[1] == versions[2] != versions[0]
    assert [(row["seller_id"], row["stock"]) for row in rows(two_days, "product_catalog", BEFORE)] == [
        (SELLER, 3),
        ("dmont", 3),
    ]
    assert [(row["seller_id"], row["stock"]) for row in rows(two_days, "product_catalog", DAY)] == [
        (SELLER, 3),
        ("dmont", 0),
    ]
    assert [(row["field"], row["new_number"]) for row in rows(two_days, "product_changes", DAY)] == [("stock", 0)]


def test_the_columns_that_dagster_shows_are_those_of_the_files(two_days: Path, instance: dg.DagsterInstance) -> None:
    export(instance, DAY)
    [spec] = [spec for spec in defs.resolve_all_asset_specs() if spec.key == DAY_CATALOG]
    shown = [(one.name, one.description) for one in spec.metadata["dagster/column_schema"].columns]

    assert shown == [(one.name, one.description) for one in PRODUCT_CATALOG]
    assert [name for name, _ in shown] == list(rows(two_days, "product_catalog", DAY)[0])


def test_a_stored_state_of_another_shape_fails_the_day_and_leaves_the_last_whole_one(
    database: Database, two_days: Path, instance: dg.DagsterInstance
) -> None:
    export(instance, DAY)
    before = rows(two_days, "product_catalog", DAY)
    with database.transaction() as connection:
        connection.execute(
            text("""UPDATE product_change_sets SET product_data = '{"stock": "many"}' WHERE version = 2""")
        )

    result = export(instance, DAY)

    assert not result.success
    [failed] = [event for event in result.get_step_failure_events() if event.step_key == "product_catalog"]
    said = str(failed.step_failure_data.error)
    assert "A stored state among items 1 to 1 of seller dmont does not fit the columns of the lake" in said
    assert rows(two_days, "product_catalog", DAY) == before
    assert not any((two_days / ".making").iterdir())


def test_a_lake_that_cannot_be_written_is_named(two_days: Path, instance: dg.DagsterInstance) -> None:
    two_days.mkdir()
    (two_days / "product_changes").touch()

    step, said = failure(export(instance, DAY))

    assert step == "product_changes"
    assert f"{two_days}/product_changes/day={DAY} cannot be used; look at MUSTIT_LAKE_URI" in said


def test_a_run_of_days_keeps_no_seller_busy() -> None:
    def run(job: str, *assets: dg.AssetKey) -> dg.DagsterRun:
        return dg.DagsterRun(job_name=job, asset_selection=frozenset(assets) or None)

    of_a_day = [run("export_days"), run("measure_days"), run("__ASSET_JOB", DAY_METRICS, DAY_CHANGES)]
    assert [is_of_a_day(one) for one in of_a_day] == [True] * 3
    assert [exports_a_day(one) for one in of_a_day] == [True, False, False]
    assert exports_a_day(run("__ASSET_JOB", DAY_CATALOG))
    assert not is_of_a_day(run("__ASSET_JOB", DAY_CATALOG, dg.AssetKey("product_details")))
    assert not is_of_a_day(run("crawl_seller"))


def test_the_page_of_a_day_shows_the_sellers_with_most_rows() -> None:
    shown = largest_sellers({**{f"s{n:02}": n for n in range(50)}, "a|b": 100}).splitlines()

    assert (len(shown), shown[2], shown[3]) == (22, "| a\\|b | 100 |", "| s49 | 49 |")
