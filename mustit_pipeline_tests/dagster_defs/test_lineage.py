"""What the Dagster UI shows: a small snapshot that changes only on purpose."""

import subprocess
import sys
import warnings

import dagster as dg
import pytest

from mustit_pipeline.definitions import defs
from mustit_pipeline.defs.crawl import change_sets, listings, products
from mustit_pipeline.defs.delivery import product_relay
from mustit_pipeline.defs.lake import exports
from mustit_pipeline.defs.metrics import daily
from mustit_pipeline_tests.dagster_defs.snapshot import SNAPSHOT, snapshot_of
from mustit_pipeline_tests.dagster_defs.strictly import be_strict

UNSTEADY = {
    DeprecationWarning: "@dg.asset(auto_materialize_policy=dg.AutoMaterializePolicy.eager())\ndef one(): ...",
    dg.PreviewWarning: "dg.AssetCheckSpec('two', asset='one', partitions_def=dg.StaticPartitionsDefinition(['x']))",
    dg.SupersessionWarning: "from datetime import timedelta\n"
    "one = dg.build_last_update_freshness_checks(assets=['one'], lower_bound_delta=timedelta(1))",
    dg.BetaWarning: "one = dg.build_metadata_bounds_checks(assets=['one'], metadata_key='rows')",
}


def _specs() -> dict[str, dg.AssetSpec]:
    return {spec.key.to_user_string(): spec for spec in defs.resolve_all_asset_specs()}


def test_every_definition_is_as_its_snapshot_says() -> None:
    assert snapshot_of(defs) == SNAPSHOT.read_text(), (
        "if this was on purpose: python -m mustit_pipeline_tests.dagster_defs.snapshot"
    )


def test_every_asset_says_whose_it_is_what_it_is_and_is_cut_by_seller_or_by_day_in_seoul() -> None:
    for key, spec in _specs().items():
        assert spec.owners == ["team:data-engineering"], key
        assert spec.description, key
        if key in ("daily_crawl_metrics", "product_catalog", "product_changes"):
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
        "product_server": product_relay.DELIVERED,
        "daily_crawl_metrics": daily.LINEAGE,
        "product_catalog": exports.CATALOG.lineage,
        "product_changes": exports.CHANGES.lineage,
    }
    assert said.keys() == specs.keys() - {"mustit_marketplace"}
    for key, metadata in said.items():
        for name, sources in metadata["dagster/column_lineage"].deps_by_column.items():
            assert name in columns[key], (key, name)
            assert sources, (key, name)
            for source in sources:
                assert source.column_name in columns[source.asset_key.to_user_string()], (key, source)


def test_every_job_runs_in_one_process() -> None:
    repository = defs.get_repository_def()
    assert {job.executor_def.name for job in repository.get_all_jobs()} == {"in_process"}


def test_every_definition_says_in_words_what_it_is() -> None:
    repository = defs.get_repository_def()
    graph = defs.resolve_asset_graph()
    described = {
        **{job.name: job.description for job in repository.get_all_jobs() if not job.name.startswith("__")},
        **{sensor.name: sensor.description for sensor in repository.sensor_defs},
        **{schedule.name: schedule.description for schedule in repository.schedule_defs},
        **{str(key): graph.get_check_spec(key).description for key in graph.asset_check_keys},
    }
    assert [name for name, description in described.items() if not description] == []


def test_the_definitions_load_and_use_nothing_that_may_change_or_go() -> None:
    loaded = subprocess.run(
        [sys.executable, "-m", "mustit_pipeline_tests.dagster_defs.strictly", "mustit_pipeline.definitions"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert loaded.returncode == 0, loaded.stdout + loaded.stderr


@pytest.mark.parametrize(("category", "use"), UNSTEADY.items(), ids=lambda value: getattr(value, "__name__", "use"))
def test_such_a_use_would_have_been_noticed(category: type[Warning], use: str) -> None:
    with warnings.catch_warnings():
        be_strict()
        with pytest.raises(category):
            exec(f"import dagster as dg\n{use}\ndefs = dg.Definitions()\n", {"__name__": "unsteady"})
