"""Old runs in Dagster's own PostgreSQL: their lines go, and everything that tells of an asset stays."""

from collections.abc import Generator
from datetime import timedelta

import dagster as dg
import pytest
from sqlalchemy import text

from mustit_pipeline.cli.runtime import dagster_instance
from mustit_pipeline.defs.upkeep.run_logs import PrunedRuns, prune_runs
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.settings import Settings
from mustit_pipeline.upkeep.sql import run_logs
from mustit_pipeline_tests.conftest import MakeSettings

NAMES = ("DAGSTER_HOME", "DAGSTER_STORAGE_URL", "DAGSTER_DISABLE_TELEMETRY", "MUSTIT_HOME", "MUSTIT_RUNS_AT_ONCE")


@dg.asset(
    partitions_def=dg.StaticPartitionsDefinition(["a", "b"]), check_specs=[dg.AssetCheckSpec("fine", asset="kept")]
)
def kept(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
    context.log.info("a line that is not needed in a month")
    return dg.MaterializeResult(
        metadata={"rows": 3}, check_results=[dg.AssetCheckResult(passed=True, check_name="fine")]
    )


@dg.asset_check(asset="kept")
def still_fine(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
    context.log.info("a third one")
    return dg.AssetCheckResult(passed=True)


@dg.op
def speak(context: dg.OpExecutionContext) -> None:
    context.log.info("another one")


@dg.job
def without_assets() -> None:
    speak()


@dg.op(out=dg.Out(dg.Nothing))
def tell_and_stumble(context: dg.OpExecutionContext) -> None:
    context.log_event(dg.AssetMaterialization("kept", partition="b"))
    raise dg.Failure("told for as long as the run is there", allow_retries=False)


@dg.job
def failing_with_an_asset() -> None:
    tell_and_stumble()


@pytest.fixture
def settings(make_settings: MakeSettings, empty_database_url: str, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings whose Dagster has a database of its own."""
    for name in NAMES:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    return make_settings(dagster_database_url=empty_database_url, run_log_retention_days=30)


@pytest.fixture
def instance(settings: Settings) -> Generator[dg.DagsterInstance]:
    with dagster_instance(settings) as opened:
        yield opened


def run_everything(instance: dg.DagsterInstance) -> dict[str, str]:
    """A materialization, a check alone, an op job without either, and a failure that tells of an asset, by name."""
    one = dg.materialize([kept], partition_key="a", instance=instance)
    two = without_assets.execute_in_process(instance=instance)
    three = failing_with_an_asset.execute_in_process(instance=instance, raise_on_error=False)
    checking = dg.define_asset_job("checking", selection=dg.AssetSelection.checks(still_fine))
    checks = dg.Definitions(assets=[kept], asset_checks=[still_fine], jobs=[checking]).resolve_job_def("checking")
    four = checks.execute_in_process(instance=instance)
    return {"asset": one.run_id, "op": two.run_id, "failed": three.run_id, "check": four.run_id}


def lines(settings: Settings, run_id: str) -> int:
    with run_logs.dagster_database(settings) as database, database.reading() as connection:
        query = text("SELECT count(*) FROM event_logs WHERE run_id = :run_id")
        return connection.execute(query, {"run_id": run_id}).scalar_one()


def test_old_lines_go_while_materializations_checks_and_failures_stay(
    settings: Settings, instance: dg.DagsterInstance
) -> None:
    runs = run_everything(instance)
    before = {name: lines(settings, run_id) for name, run_id in runs.items()}
    later = utc_now() + timedelta(days=31)

    dry = prune_runs(instance, settings, later, dry_run=True)
    assert {name: lines(settings, run_id) for name, run_id in runs.items()} == before
    pruned = prune_runs(instance, settings, later)

    assert pruned.runs == dry.runs == 1
    # A dry run counts the lines of the run that goes, too.
    assert dry.lines > pruned.lines > 0
    assert instance.get_run_by_id(runs["op"]) is None
    assert lines(settings, runs["op"]) == 0
    after = {name: lines(settings, run_id) for name, run_id in runs.items()}
    assert sum(before.values()) - before["op"] - sum(after.values()) == pruned.lines
    assert "a line that is not needed" not in str(instance.all_logs(runs["asset"]))

    key = dg.AssetKey("kept")
    found = instance.fetch_materializations(key, limit=10).records
    assert {record.partition_key for record in found} == {"a", "b"}
    [first] = [record.asset_materialization for record in found if record.partition_key == "a"]
    assert first is not None
    assert first.metadata["rows"].value == 3
    assert instance.get_latest_materialization_event(key) is not None
    assert set(instance.get_materialized_partitions(key)) == {"a", "b"}
    for name in ("asset", "check"):
        checked = instance.get_records_for_run(runs[name], of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION).records
        assert len(checked) == 1
    succeeded, failed = dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE
    for name, status in (("asset", succeeded), ("check", succeeded), ("failed", failed)):
        stored = instance.get_run_by_id(runs[name])
        assert stored is not None
        assert stored.status is status
    [failure] = instance.get_records_for_run(runs["failed"], of_type=dg.DagsterEventType.STEP_FAILURE).records
    assert "told for as long as the run is there" in str(failure.event_log_entry.dagster_event)

    assert prune_runs(instance, settings, later) == PrunedRuns(0, 0)


def test_runs_that_are_young_or_unfinished_are_not_touched(settings: Settings, instance: dg.DagsterInstance) -> None:
    runs = run_everything(instance)
    assert prune_runs(instance, settings, utc_now() + timedelta(days=29)) == PrunedRuns(0, 0)

    with run_logs.dagster_database(settings) as database, database.transaction() as connection:
        connection.execute(text("UPDATE runs SET status = 'STARTED'"))
    assert prune_runs(instance, settings, utc_now() + timedelta(days=365)) == PrunedRuns(0, 0)
    assert all(lines(settings, run_id) for run_id in runs.values())


def test_where_dagster_keeps_its_runs_elsewhere_nothing_is_done(make_settings: MakeSettings) -> None:
    with dg.DagsterInstance.ephemeral() as ephemeral:
        assert prune_runs(ephemeral, make_settings(), utc_now()) == PrunedRuns(0, 0)
