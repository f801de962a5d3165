"""What the Dagster UI shows: a small snapshot that changes only on purpose."""

import subprocess
import sys

import dagster as dg

from mustit_pipeline.definitions import defs
from mustit_pipeline.defs.assets import change_sets, listings, metrics, products

CRAWL_KINDS = ["http", "postgres", "python"]
# key: deps, group, kinds, code version
ASSETS = {
    "mustit_marketplace": ([], "marketplace", ["http"], None),
    "minishop_listings": (["mustit_marketplace"], "crawl", CRAWL_KINDS, "1"),
    "product_details": (["minishop_listings"], "crawl", CRAWL_KINDS, "1"),
    "product_options": (["minishop_listings"], "crawl", CRAWL_KINDS, "1"),
    "product_change_sets": (["product_details", "product_options"], "catalog", ["postgres", "python"], "1"),
    "product_server": (["product_change_sets"], "delivery", ["http"], None),
    "daily_crawl_metrics": (
        ["product_change_sets", "product_server"],
        "metrics",
        ["pandas", "parquet", "postgres", "python"],
        "1",
    ),
}
EXTERNAL = {"mustit_marketplace", "product_server"}

LOADED_STRICTLY = """
import warnings
import dagster as dg
for category in (dg.BetaWarning, dg.PreviewWarning, dg.SupersessionWarning):
    warnings.simplefilter("error", category)
warnings.filterwarnings("error", message=".*deprecated and will be removed in.*")
from mustit_pipeline.definitions import defs
dg.Definitions.validate_loadable(defs)
"""


def _specs() -> dict[str, dg.AssetSpec]:
    return {spec.key.to_user_string(): spec for spec in defs.resolve_all_asset_specs()}


def test_the_lineage_runs_from_the_marketplace_to_the_product_server() -> None:
    found = {
        key: (
            sorted(dep.asset_key.to_user_string() for dep in spec.deps),
            spec.group_name,
            sorted(spec.kinds),
            spec.code_version,
        )
        for key, spec in _specs().items()
    }
    assert found == ASSETS


def test_every_asset_says_whose_it_is_what_it_is_and_is_cut_by_seller_or_by_day_in_seoul() -> None:
    for key, spec in _specs().items():
        assert spec.owners == ["team:data-engineering"], key
        assert spec.description, key
        if key == "daily_crawl_metrics":
            assert isinstance(spec.partitions_def, dg.DailyPartitionsDefinition)
            assert spec.partitions_def.timezone == "Asia/Seoul"
        else:
            assert isinstance(spec.partitions_def, dg.DynamicPartitionsDefinition), key
            assert spec.partitions_def.name == "sellers", key


def test_every_asset_shows_its_columns() -> None:
    for key, spec in _specs().items():
        schema = spec.metadata["dagster/column_schema"]
        assert isinstance(schema, dg.TableSchema), key
        assert all(column.description for column in schema.columns), key


def test_column_lineage_leads_from_columns_that_are_there_to_columns_that_are_there() -> None:
    specs = _specs()
    columns = {key: {one.name for one in spec.metadata["dagster/column_schema"].columns} for key, spec in specs.items()}
    said = {
        "minishop_listings": listings.LINEAGE,
        "product_details": products.column_lineage("product_details"),
        "product_options": products.column_lineage("product_options"),
        "product_change_sets": change_sets.LINEAGE,
        "daily_crawl_metrics": metrics.LINEAGE,
    }
    assert said.keys() == specs.keys() - EXTERNAL
    for key, metadata in said.items():
        for name, sources in metadata["dagster/column_lineage"].deps_by_column.items():
            assert name in columns[key], (key, name)
            assert sources, (key, name)
            for source in sources:
                assert source.column_name in columns[source.asset_key.to_user_string()], (key, source)


def test_only_our_own_assets_can_be_materialized() -> None:
    graph = defs.resolve_asset_graph()
    assert {key.to_user_string() for key in graph.materializable_asset_keys} == ASSETS.keys() - EXTERNAL


def test_failed_tasks_and_unbelievable_changes_block_and_no_other_check_does() -> None:
    graph = defs.resolve_asset_graph()
    checks = [graph.get_check_spec(key) for key in graph.asset_check_keys]
    assert {(check.name, check.asset_key.to_user_string(), check.blocking) for check in checks} == {
        ("no_failed_tasks", "product_change_sets", True),
        ("believable_changes", "product_change_sets", True),
        ("sweep_complete", "minishop_listings", False),
        ("no_held_deletions", "minishop_listings", False),
        ("known_shape", "minishop_listings", False),
        ("crawl_success", "product_details", False),
        ("listing_coverage", "minishop_listings", False),
        ("completeness", "product_change_sets", False),
        ("delivered_in_time", "product_server", False),
        ("products_a_day", "product_details", False),
        ("sampled_truth", "product_change_sets", False),
        ("sellers_succeeding", "minishop_listings", False),
        ("sellers_on_time", "minishop_listings", False),
        ("no_failed_events", "product_server", False),
        ("outbox_age", "product_server", False),
        ("price_jumps", "product_change_sets", False),
        ("null_share", "product_change_sets", False),
        ("schema_drift", "mustit_marketplace", False),
    }
    assert all(check.partitions_def is None for check in checks)


def test_jobs_sensors_and_schedules_carry_the_agreed_names_and_are_on() -> None:
    repository = defs.get_repository_def()
    jobs = {job.name for job in repository.get_all_jobs() if not job.name.startswith("__")}
    sensors = {
        sensor.name: (sensor.default_status.value, sensor.minimum_interval_seconds)
        for sensor in repository.sensor_defs
        if sensor.name != "default_automation_condition_sensor"
    }
    schedules = {
        schedule.name: (schedule.default_status.value, schedule.cron_schedule, schedule.execution_timezone)
        for schedule in repository.schedule_defs
    }

    assert jobs == {
        "crawl_seller",
        "relay_product_outbox",
        "recover_stuck_work",
        "maintain_storage",
        "measure_days",
        "check_criteria",
    }
    assert sensors == {
        "seller_partitions": ("RUNNING", 30),
        "due_crawls": ("RUNNING", 5),
        "waiting_outbox": ("RUNNING", 15),
        "run_failures": ("RUNNING", 30),
    }
    assert schedules == {
        "relay_every_5_minutes": ("RUNNING", "*/5 * * * *", "Asia/Seoul"),
        "recover_every_minute": ("RUNNING", "* * * * *", "Asia/Seoul"),
        "daily_metrics": ("RUNNING", "10 0 * * *", "Asia/Seoul"),
        "nightly_maintenance": ("RUNNING", "30 3 * * *", "Asia/Seoul"),
        "weekly_full_refresh": ("RUNNING", "0 * * * *", "Asia/Seoul"),
        "check_every_hour": ("RUNNING", "25 * * * *", "Asia/Seoul"),
    }


def test_every_job_runs_in_one_process() -> None:
    repository = defs.get_repository_def()
    assert {job.executor_def.name for job in repository.get_all_jobs()} == {"in_process"}


def test_the_definitions_load_without_preview_beta_superseded_or_deprecated_parts() -> None:
    loaded = subprocess.run([sys.executable, "-c", LOADED_STRICTLY], capture_output=True, text=True, check=False)
    assert loaded.returncode == 0, loaded.stderr
