"""The asset that keeps a day's numbers: one Parquet file per day, written again as a whole."""

from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from threading import Event, Thread
from typing import Any

import dagster as dg
import pyarrow.fs as filesystems
import pytest
from moto.server import ThreadedMotoServer
from pyarrow import parquet
from sqlalchemy import text

from mustit_pipeline.definitions import defs
from mustit_pipeline.defs.metrics.daily import METRIC_COLUMNS, as_row, preview_of
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.lake.place import lake_of
from mustit_pipeline.monitoring.metrics import CrawlMetrics, metrics_of
from mustit_pipeline.monitoring.sql.metrics import SellerDay
from mustit_pipeline.settings import SettingsError
from mustit_pipeline_tests.conftest import MakeSettings, free_port
from mustit_pipeline_tests.dagster_defs.conftest import Bucket, SetEnvironment
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
        assert metadata["path"].value == f"{lake}/daily_crawl_metrics/day={day}/metrics.parquet"
        assert (metadata["dagster/partition_row_count"].value, metadata["crawled_sellers"].value) == (2, 1)
        assert (metadata["tasks_total"].value, metadata["throttled"].value) == (10, 1)
        versions.append((event.materialization.tags or {})["dagster/data_version"])

    assert versions[1] == versions[2] != versions[0]
    assert sorted(str(path.relative_to(lake)) for path in lake.rglob("*.parquet")) == [
        f"daily_crawl_metrics/day={BEFORE}/metrics.parquet",
        f"daily_crawl_metrics/day={DAY}/metrics.parquet",
    ]
    stored = read(lake / "daily_crawl_metrics" / f"day={BEFORE}" / "metrics.parquet")
    assert [["day", *row] for row in stored] == [NAMES] * 2
    assert [(row["seller_id"], row["success_rate"]) for row in stored] == [("idle", 0.0), ("한글 & a/b 50%", 50.0)]
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


def test_a_day_is_an_object_on_s3_that_a_backfill_replaces(
    two_days: Database, instance: dg.DagsterInstance, set_environment: SetEnvironment, bucket: Bucket
) -> None:
    set_environment(lake_uri="s3://bucket/some/prefix", aws_endpoint_url=bucket.endpoint)
    name = f"some/prefix/daily_crawl_metrics/day={DAY}/metrics.parquet"

    assert measure(instance, DAY).success
    assert [(row["seller_id"], row["success_rate"]) for row in bucket.read(name)] == [
        ("idle", 0.0),
        ("한글 & a/b 50%", 90.0),
    ]

    with two_days.transaction() as connection:
        connection.execute(text("UPDATE crawling_schedule_executions SET completed_tasks = 7, failed_tasks = 3"))
    backfilled = measure(instance, DAY)
    [event] = backfilled.get_asset_materialization_events()
    size = bucket.client.head_object(Bucket="bucket", Key=name)["ContentLength"]
    assert event.materialization.metadata["path"].value == f"s3://bucket/{name}"
    assert event.materialization.metadata["bytes"].value == size
    assert bucket.names() == [name]
    assert [row["success_rate"] for row in bucket.read(name)] == [0.0, 70.0]
    read_back: Any = defs.load_asset_value("daily_crawl_metrics", partition_key=DAY.isoformat(), instance=instance)
    assert list(read_back) == NAMES
    assert [list(read_back[name]) for name in ("day", "success_rate")] == [[DAY, DAY], [0.0, 70.0]]


@pytest.mark.usefixtures("two_days")
def test_a_bucket_that_is_not_there_or_not_ours_is_named_and_not_asked_again(
    instance: dg.DagsterInstance, set_environment: SetEnvironment, bucket: Bucket
) -> None:
    set_environment(lake_uri="s3://no-such-bucket/x", aws_endpoint_url=bucket.endpoint)
    missing = measure(instance, DAY)
    set_environment(lake_uri="s3://bucket/x")
    bucket.let_in("0")
    locked = measure(instance, DAY)

    for result, named in ((missing, "no-such-bucket"), (locked, "bucket")):
        assert not result.success
        assert result.filter_events(lambda event: event.is_step_up_for_retry) == []
        [failed] = result.get_step_failure_events()
        said = str(failed.step_failure_data.user_failure_data)
        assert f"AWS refuses s3://{named}/x/daily_crawl_metrics/day={DAY}/; look at its name" in said


@pytest.mark.usefixtures("two_days")
def test_an_s3_that_does_not_answer_is_asked_again(
    instance: dg.DagsterInstance, set_environment: SetEnvironment, bucket: Bucket
) -> None:
    port = free_port()
    set_environment(lake_uri="s3://bucket/x", aws_endpoint_url=f"http://127.0.0.1:{port}")
    # All servers of a process show the same buckets.
    late = ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)

    def start_once_it_was_missed() -> None:
        while not ended.wait(0.05):
            runs = instance.get_runs()
            if runs and instance.all_logs(runs[0].run_id, of_type=dg.DagsterEventType.STEP_UP_FOR_RETRY):
                late.start()
                ended.wait()
                late.stop()

    ended = Event()
    back = Thread(target=start_once_it_was_missed)
    back.start()
    result = measure(instance, DAY)
    ended.set()
    back.join()

    assert result.success
    [retried, *_] = result.filter_events(lambda event: event.is_step_up_for_retry)
    said = str(retried.step_retry_data.error)
    assert f"s3://bucket/x/daily_crawl_metrics/day={DAY}/ cannot be reached" in said
    assert bucket.names() == [f"x/daily_crawl_metrics/day={DAY}/metrics.parquet"]
