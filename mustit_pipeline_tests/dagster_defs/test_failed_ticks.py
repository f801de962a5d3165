"""Ticks as a real daemon writes them: a sensor that fails is a condition until it ticks well again."""

from collections.abc import Generator
from pathlib import Path

import dagster as dg
import pytest

from mustit_pipeline_tests.dagster_defs.daemon import running_daemon, until

SENSORS = """
import os
from pathlib import Path

import dagster as dg

from mustit_pipeline.defs.monitoring.alerts import failed_ticks

def look(context):
    location = context.code_location_origin.location_name
    if context.sensor_name == "broken" and not Path(os.environ["DAGSTER_HOME"], f"{location} mended").exists():
        raise RuntimeError("hunter2")
    # On a busy machine a good one may fail for want of an answer in time, too; it is not what this is about.
    return dg.SkipReason(str([one for one in failed_ticks(context) if one.subject == "tick broken"]))

running = {"minimum_interval_seconds": 1, "default_status": dg.DefaultSensorStatus.RUNNING}
defs = dg.Definitions(sensors=[dg.SensorDefinition(name, evaluation_fn=look, **running) for name in ("broken", "well")])
"""
FOUND = (
    "[Condition(subject='tick broken', kind='TICK_FAILED', title='The sensor broken fails', "
    "detail='Its last tick failed: look at it in Automation.')]"
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Path]:
    """A daemon's home, with a daemon in it that runs one good and one bad sensor, in two code locations."""
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    monkeypatch.setenv("DAGSTER_DISABLE_TELEMETRY", "yes")
    (tmp_path / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    # Makes the tables: two that do so at once get in each other's way.
    dg.DagsterInstance.get().dispose()
    with running_daemon(tmp_path, SENSORS, locations=("one", "other")):
        yield tmp_path


def seen_from(instance: dg.DagsterInstance, location: str) -> str | None:
    """What the good sensor of a code location has last seen."""
    for state in instance.all_instigator_state():
        if (state.instigator_name, state.origin.location_name) == ("well", location):
            ticks = instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=5)
            return next((tick.skip_reason for tick in ticks if tick.skip_reason), None)
    return None


def test_a_sensor_whose_last_tick_failed_is_named_in_its_own_location_until_it_ticks_well(home: Path) -> None:
    """Of a location that was renamed the last tick stays what it was: it would be an alert for ever."""
    with dg.DagsterInstance.get() as instance:
        until(lambda: [seen_from(instance, f"{name}.py") for name in ("one", "other")] == [FOUND, FOUND])

        (home / "one.py mended").touch()
        until(lambda: seen_from(instance, "one.py") == "[]")
        assert seen_from(instance, "other.py") == FOUND
