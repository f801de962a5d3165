"""The asset that keeps a day's numbers: one Parquet file per day, written again as a whole."""

from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow.fs as filesystems
import pytest
from pyarrow import parquet
from sqlalchemy import text

from mustit_pipeline.definitions import defs
from mustit_pipeline.defs.assets.metrics import METRIC_COLUMNS, as_row, preview_of
from mustit_pipeline.defs.lake import lake_of
from mustit_pipeline.scheduling.metrics import CrawlMetrics, metrics_of
from mustit_pipeline.settings import SettingsError
from mustit_pipeline.store.database import Database
from mustit_pipeline.store.metrics import SellerDay
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.dagster_defs.conftest import SetEnvironment
from mustit_pipeline_tests.integration.crawls import register

DAY = date(2026, 11, 14)
BEFORE = DAY - timedelta(days=1)
NAMES = [column.name for column in METRIC_COLUMNS["dagster/column_schema"].columns]


@pytest.fixture
def two_days(database: Database) -> Database:
    """A seller that was crawled on two days running, and one that never was."""
    register(database, "한글 & a/b 50%", "idle")
    with database.transaction() as connection:
        connection.execute(text("UPDATE sellers SET created_at = '2026-01-01'"))
        for day, completed in ((DAY, 9), (BEFORE, 5)):
            connection.execute(
                text("""
                    INSERT INTO crawling_schedule_executions (execution_id, seller_id, schedule_id, status,
                        triggered_by, task_month, sweep_status, started_at, ended_at, total_tasks, completed_tasks,
                        failed_tasks, requests, throttled, listed_count)
                    SELECT gen_random_uuid(), seller_id, schedule_id, 'COMPLETED', 'test', '2026-11-01', 'COMPLETE',
                           :at, :at, 10, :completed, 10 - :completed, 12, 1, 7
                    FROM crawling_schedules WHERE seller_id <> 'idle'
                """),
                {"at": f"{day} 03:00:00+00", "completed": completed},
            )
    return database


def measure(instance: dg.DagsterInstance, day: date) -> dg.ExecuteInProcessResult:
    return defs.resolve_job_def("measure_days").execute_in_process(
        instance=instance, partition_key=day.isoformat(), raise_on_error=False
    )


def read(path: Path) -> list[dict[str, Any]]:
    return parquet.read_table(path).to_pylist()


def test_a_row_has_just_the_columns_that_the_asset_describes(two_days: Database) -> None:
    rows = [as_row(one) for one in metrics_of(two_days, DAY)]

    assert [sorted(row) for row in rows] == [sorted(NAMES)] * 2
    assert [(row["seller_id"], row["success_rate"], row["requests"]) for row in rows] == [
        ("idle", 0.0, 0),
        ("한글 & a/b 50%", 90.0, 12),
    ]


def test_the_preview_shows_the_sellers_with_most_to_do_and_no_more_than_a_page() -> None:
    def seller(name: str, tasks: int) -> CrawlMetrics:
        return CrawlMetrics(DAY, replace(SellerDay.nothing(name), tasks_total=tasks))

    lines = preview_of([seller(f"s{n}", n) for n in range(50)] + [seller("a|b", 100)]).splitlines()

    assert len(lines) == 2 + 20
    assert lines[2].startswith("| a\\|b | 0.00 | 0.00 | 100 |")
    assert lines[3].startswith("| s49 |")


@pytest.mark.usefixtures("set_environment", "two_days")
def test_two_past_days_are_backfilled_and_a_day_that_is_measured_again_is_the_same(
    two_days: Database, instance: dg.DagsterInstance, set_environment: SetEnvironment, tmp_path: Path
) -> None:
    lake = tmp_path / "the lake"
    set_environment(lake_uri=lake)

    versions: list[str] = []
    for day in (BEFORE, DAY, DAY):
        result = measure(instance, day)
        assert result.success
        [event] = result.get_asset_materialization_events()
        assert event.partition == day.isoformat()
        metadata = event.materialization.metadata
        assert metadata["path"].value == f"{lake}/daily_crawl_metrics/{day}.parquet"
        assert (metadata["dagster/partition_row_count"].value, metadata["crawled_sellers"].value) == (2, 1)
        assert (metadata["tasks_total"].value, metadata["throttled"].value) == (10, 1)
        versions.append((event.materialization.tags or {})["dagster/data_version"])

    assert versions[1] == versions[2] != versions[0]
    assert sorted(path.name for path in (lake / "daily_crawl_metrics").iterdir()) == [
        f"{BEFORE}.parquet",
        f"{DAY}.parquet",
    ]
    stored = read(lake / "daily_crawl_metrics" / f"{BEFORE}.parquet")
    assert [list(row) for row in stored] == [NAMES] * 2
    assert [(row["day"], row["seller_id"], row["success_rate"]) for row in stored] == [
        (BEFORE, "idle", 0.0),
        (BEFORE, "한글 & a/b 50%", 50.0),
    ]
    assert stored[0]["delivery_max_hours"] is None


def test_the_lake_is_under_home_unless_the_setting_names_a_path_or_a_bucket(
    make_settings: MakeSettings, tmp_path: Path
) -> None:
    assert lake_of(make_settings()).root == str(tmp_path / "home" / "lake")
    assert lake_of(make_settings(lake_uri=str(tmp_path / "x"))).shown("y.parquet") == str(tmp_path / "x" / "y.parquet")
    bucket = lake_of(make_settings(lake_uri="s3://bucket/some/prefix/", aws_endpoint_url="http://127.0.0.1:9"))
    assert bucket.shown("y.parquet") == "s3://bucket/some/prefix/y.parquet"


def test_a_pyarrow_without_s3_is_said_so(make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(filesystems, "S3FileSystem")

    with pytest.raises(SettingsError, match="built without S3"):
        lake_of(make_settings(lake_uri="s3://bucket"))
