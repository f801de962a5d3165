"""`mustit run-worker` and `mustit seller load`, where they can be used wrongly."""

from pathlib import Path

from mustit_pipeline_tests.e2e.asking import explained
from mustit_pipeline_tests.e2e.conftest import World


def test_a_run_worker_that_no_run_would_reach_says_what_to_set(world: World) -> None:
    refused = explained(world, "run-worker")

    assert refused.code == 1
    assert "MUSTIT_RUN_LAUNCHER=celery" in refused.err


def test_a_run_worker_without_a_marketplace_refuses_before_it_takes_a_run(world: World) -> None:
    refused = explained(world, "run-worker", MUSTIT_RUN_LAUNCHER="celery", MUSTIT_BASE_URL="")

    assert refused.code == 1
    assert "MUSTIT_BASE_URL is not set" in refused.err


def test_a_run_worker_refuses_a_dagster_yaml_that_launches_runs_elsewhere(world: World, tmp_path: Path) -> None:
    (tmp_path / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")

    refused = explained(world, "run-worker", MUSTIT_RUN_LAUNCHER="celery", DAGSTER_HOME=str(tmp_path))

    assert refused.code == 1
    assert "deploy/celery/run_launcher.yaml" in refused.err


def test_sellers_of_a_file_are_registered_and_bad_lines_are_named(world: World, tmp_path: Path) -> None:
    file = tmp_path / "sellers.csv"
    file.write_text("# sellers\nloaded,Loaded,6h\n한글 셀러,이름\nbroken\n", encoding="utf-8")

    loaded = explained(world, "seller", "load", str(file), "--json")

    assert loaded.code == 1
    assert (loaded.document["added"], loaded.document["known"]) == (2, 0)
    assert [entry["line"] for entry in loaded.document["rejected"]] == [4]
    assert explained(world, "seller", "show", "loaded", "--json").document["interval"] == "6h"
    file.write_text("loaded,Again\n", encoding="utf-8")
    again = explained(world, "seller", "load", str(file))
    assert (again.code, again.out) == (0, "0 registered, 1 known already.\n")
