"""Files that the ticks of a real daemon leave behind."""

from collections.abc import Generator
from datetime import timedelta
from pathlib import Path

import dagster as dg
import pytest

from mustit_pipeline.definitions import defs
from mustit_pipeline.defs.upkeep.tick_logs import REPOSITORY, prune_tick_logs
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.dagster_defs.daemon import running_daemon, until

SENSORS = """
import dagster as dg

@dg.sensor(minimum_interval_seconds=1, default_status=dg.DefaultSensorStatus.RUNNING)
def speaking(context):
    context.log.info("a line")
    return dg.SkipReason("nothing to do")

defs = dg.Definitions(sensors=[speaking])
"""


@pytest.fixture
def ticked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[dg.DagsterInstance]:
    """An instance whose daemon has ticked a while and is gone."""
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    monkeypatch.setenv("DAGSTER_DISABLE_TELEMETRY", "yes")
    (tmp_path / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    with dg.DagsterInstance.get() as instance:
        with running_daemon(tmp_path, SENSORS):
            until(lambda: len(files(tmp_path)) > 1)
        yield instance


def files(home: Path) -> list[Path]:
    return sorted((home / "storage").rglob("*.err"))


def test_what_ticks_wrote_goes_with_the_log_lines_of_runs(
    ticked: dg.DagsterInstance, make_settings: MakeSettings, tmp_path: Path
) -> None:
    settings, now, written = make_settings(run_log_retention_days=30), utc_now(), files(tmp_path)
    assert prune_tick_logs(ticked, settings, now + timedelta(days=29)) == 0

    later = now + timedelta(days=31)
    assert prune_tick_logs(ticked, settings, later, dry_run=True) == len(written)
    assert files(tmp_path) == written
    assert prune_tick_logs(ticked, settings, later) == len(written)
    assert files(tmp_path) == []


def test_our_ticks_are_where_they_are_looked_for() -> None:
    assert defs.get_repository_def().name == REPOSITORY


def test_where_no_file_is_kept_nothing_is_done(make_settings: MakeSettings) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        assert prune_tick_logs(instance, make_settings(), utc_now()) == 0
