"""Ticks as a real daemon writes them: a sensor that fails is a condition until it ticks well again."""

from collections.abc import Generator
from pathlib import Path

import dagster as dg
import pytest

from mustit_pipeline.defs.alerts import failed_ticks
from mustit_pipeline.store.alerts import Condition
from mustit_pipeline_tests.dagster_defs.daemon import running_daemon, until

SENSORS = """
import os
from pathlib import Path

import dagster as dg

def look(context):
    if context.sensor_name == "broken" and not Path(os.environ["DAGSTER_HOME"], "mended").exists():
        raise RuntimeError("hunter2")
    return dg.SkipReason("nothing to do")

running = {"minimum_interval_seconds": 1, "default_status": dg.DefaultSensorStatus.RUNNING}
defs = dg.Definitions(sensors=[dg.SensorDefinition(name, evaluation_fn=look, **running) for name in ("broken", "well")])
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Path]:
    """A daemon's home, with a daemon in it that runs one good and one bad sensor."""
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    monkeypatch.setenv("DAGSTER_DISABLE_TELEMETRY", "yes")
    (tmp_path / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    # Makes the tables: two that do so at once get in each other's way.
    dg.DagsterInstance.get().dispose()
    with running_daemon(tmp_path, SENSORS):
        yield tmp_path


def broken(instance: dg.DagsterInstance) -> list[Condition]:
    return [found for found in failed_ticks(instance) if found.subject == "tick broken"]


def test_a_sensor_whose_last_tick_failed_is_named_until_it_ticks_well(home: Path) -> None:
    with dg.DagsterInstance.get() as instance:
        # On a busy machine the good one may fail for want of an answer in time, too; it is not what this is about.
        until(lambda: bool(broken(instance)))
        [found] = broken(instance)
        assert (found.subject, found.kind, found.title) == ("tick broken", "TICK_FAILED", "The sensor broken fails")
        assert "hunter2" not in str(found)

        (home / "mended").touch()
        until(lambda: not broken(instance))
        ticked = [state for state in instance.all_instigator_state() if state.instigator_name == "well"]
        assert len(ticked) == 1
