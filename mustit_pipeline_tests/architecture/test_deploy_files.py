"""Every deployment queues, watches and repeats runs by the rules of dagster.yaml, under names that Dagster knows."""

import re
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import quote

import dagster as dg
import pytest
import yaml
from dagster_aws.ecs import EcsRunLauncher
from dagster_aws.s3.compute_log_manager import S3ComputeLogManager
from dagster_k8s import K8sRunLauncher
from dagster_postgres import PostgresRunStorage

from mustit_pipeline.settings import Settings
from mustit_pipeline_tests.architecture.deployments import containers

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
RUNS, CRAWLS = (Settings.model_fields[name].default for name in ("runs_at_once", "crawls_at_once"))

# What the chart's schema and templates know of the parts that we set, in 1.13.
CHART = {
    "": {
        *("global", "generatePostgresqlPasswordSecret", "postgresql", "dagster-user-deployments", "runLauncher"),
        *("dagsterDaemon", "retention", "telemetry", "additionalInstanceConfig", "computeLogManager"),
    },
    "global": {"postgresqlSecretName", "dagsterHome", "serviceAccountName", "celeryConfigSecretName"},
    "postgresql": {
        *("enabled", "image", "postgresqlHost", "postgresqlUsername", "postgresqlPassword", "postgresqlDatabase"),
        *("postgresqlParams", "postgresqlScheme", "service"),
    },
    "dagster-user-deployments.deployments.0": {
        *("name", "image", "dagsterApiGrpcArgs", "codeServerArgs", "includeConfigInLaunchedRuns", "port", "env"),
        *("envConfigMaps", "envSecrets", "resources", "volumes", "volumeMounts", "podSecurityContext"),
        "securityContext",
    },
    "runLauncher": {"type", "config"},
    "runLauncher.config.k8sRunLauncher": {
        *("image", "imagePullPolicy", "jobNamespace", "loadInclusterConfig", "kubeconfigFile", "envConfigMaps"),
        *("envSecrets", "envVars", "volumeMounts", "volumes", "labels", "failPodOnRunFailure", "resources"),
        *("schedulerName", "securityContext", "runK8sConfig"),
    },
    "runLauncher.config.k8sRunLauncher.runK8sConfig": {
        *("containerConfig", "podSpecConfig", "podTemplateSpecMetadata", "jobSpecConfig", "jobMetadata"),
    },
    "dagsterDaemon": {"enabled", "runCoordinator", "runMonitoring", "runRetries", "env", "envSecrets", "resources"},
    "dagsterDaemon.runCoordinator": {"enabled", "type", "config"},
    "dagsterDaemon.runCoordinator.config.customRunCoordinator": {"module", "class", "config"},
    "dagsterDaemon.runMonitoring": {
        *("enabled", "startTimeoutSeconds", "cancelTimeoutSeconds", "maxRuntimeSeconds", "maxResumeRunAttempts"),
        *("pollIntervalSeconds", "freeSlotsAfterRunEndSeconds"),
    },
    "dagsterDaemon.runRetries": {"enabled", "maxRetries", "retryOnAssetOrOpFailure"},
    "retention": {"enabled", "schedule", "sensor", "autoMaterialize"},
}


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def at(document: Any, path: str) -> Any:
    """What stands under a dotted path."""
    for part in filter(None, path.split(".")):
        document = document[int(part) if part.isdigit() else part]
    return document


def snake(keys: dict[str, Any]) -> dict[str, Any]:
    """The chart's names as dagster.yaml writes them."""
    return {re.sub("[A-Z]", lambda found: f"_{found.group().lower()}", name): value for name, value in keys.items()}


def as_the_chart_writes_it(values: dict[str, Any]) -> dict[str, Any]:
    """The dagster.yaml that the chart makes of its values, without storage and launcher."""
    daemon = values["dagsterDaemon"]
    return {
        "run_coordinator": daemon["runCoordinator"]["config"]["customRunCoordinator"],
        "run_monitoring": snake(daemon["runMonitoring"]),
        "run_retries": snake(daemon["runRetries"]),
        "retention": {kind: snake(values["retention"][kind]) for kind in ("schedule", "sensor")},
        "telemetry": values["telemetry"],
        **values["additionalInstanceConfig"],
    }


def instance_of(document: dict[str, Any], folder: Path) -> dg.DagsterInstance:
    """The instance that Dagster makes of a dagster.yaml."""
    folder.mkdir()
    (folder / "dagster.yaml").write_text(yaml.safe_dump(document))
    return dg.DagsterInstance.from_config(str(folder))


def check(schema: Any, config: dict[str, Any]) -> None:
    """Dagster's own look at a piece of configuration."""

    @dg.op(config_schema=schema)
    def looked_at() -> None: ...

    @dg.job
    def looking() -> None:
        looked_at()

    dg.validate_run_config(looking, {"ops": {"looked_at": {"config": config}}})


@pytest.fixture
def base() -> dict[str, Any]:
    return read(ROOT / "dagster.yaml")


@pytest.fixture
def values() -> dict[str, Any]:
    return read(DEPLOY / "kubernetes" / "values.yaml")


def test_the_base_has_room_for_crawls_backfills_housekeeping_and_two_runs_of_anything_else(
    base: dict[str, Any],
) -> None:
    per_seller, backfills, housekeeping, all_crawls = base["run_queue"]["tag_concurrency_limits"]

    assert (per_seller["key"], per_seller["value"], per_seller["limit"]) == (
        "dagster/partition",
        {"applyLimitPerUniqueValue": True},
        1,
    )
    assert (backfills["key"], all_crawls["key"]) == ("dagster/backfill", "dagster/partition")
    assert (housekeeping["key"], housekeeping["limit"]) == ("mustit/housekeeping", 1)
    assert all_crawls["limit"] == CRAWLS + backfills["limit"]
    assert all_crawls["limit"] + housekeeping["limit"] + 2 == RUNS


def test_kubernetes_has_the_rules_of_the_base_but_for_the_time_that_a_pod_takes_to_start(
    base: dict[str, Any], values: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTIT_RUNS_AT_ONCE", str(RUNS))
    del base["storage"]
    with (
        instance_of(base, tmp_path / "base") as ours,
        instance_of(as_the_chart_writes_it(values), tmp_path / "kubernetes") as theirs,
    ):
        assert theirs.get_concurrency_config() == ours.get_concurrency_config()
        coordinator: Any = theirs.run_coordinator
        assert coordinator.dequeue_interval_seconds == base["run_queue"]["dequeue_interval_seconds"]
        slower = {"start_timeout_seconds": 300}
        assert theirs.get_settings("run_monitoring") == {**ours.get_settings("run_monitoring"), **slower}
        for same in ("run_retries", "retention", "telemetry", "nux"):
            assert theirs.get_settings(same) == ours.get_settings(same)


def test_no_tick_is_kept_for_ever(base: dict[str, Any]) -> None:
    assert set(base["retention"]) == {"schedule", "sensor"}
    for kept in base["retention"].values():
        days = kept["purge_after_days"]
        assert set(days) == {"skipped", "success", "failure", "started"}
        assert min(days.values()) > 0


@pytest.mark.parametrize("path", CHART, ids=lambda path: path or "top")
def test_kubernetes_sets_only_what_the_chart_knows(values: dict[str, Any], path: str) -> None:
    assert set(at(values, path)) <= CHART[path]


def test_kubernetes_names_a_database_of_its_own_and_the_secrets_that_its_pods_need(values: dict[str, Any]) -> None:
    postgresql = values["postgresql"]
    storage = {
        "username": postgresql["postgresqlUsername"],
        "password": "secret",
        "hostname": postgresql["postgresqlHost"],
        "db_name": postgresql["postgresqlDatabase"],
        "port": postgresql["service"]["port"],
        "scheme": postgresql["postgresqlScheme"],
        "params": postgresql["postgresqlParams"],
    }
    check(PostgresRunStorage.config_type(), {"postgres_db": storage})
    [(name, value)] = postgresql["postgresqlParams"].items()
    assert f"?{name}={quote(value)}\n" in (ROOT / "dagster.yaml").read_text()
    assert postgresql["enabled"] is False
    assert f"{postgresql['postgresqlScheme']}://" in (ROOT / "dagster.yaml").read_text()
    assert (values["global"]["postgresqlSecretName"], values["generatePostgresqlPasswordSecret"]) == (
        "mustit-dagster",
        False,
    )
    for pods in ("runLauncher.config.k8sRunLauncher", "dagster-user-deployments.deployments.0"):
        assert at(values, pods)["envSecrets"] == [{"name": "mustit"}]


def test_the_launcher_of_kubernetes_takes_what_the_chart_gives_it(values: dict[str, Any]) -> None:
    config = snake(values["runLauncher"]["config"]["k8sRunLauncher"])
    config["env_secrets"] = [one["name"] for one in config["env_secrets"]]
    config["run_k8s_config"] = snake(config["run_k8s_config"])
    made = {"instance_config_map": "x", "postgres_password_secret": "x", "service_account_name": "x"}

    check(K8sRunLauncher.config_type(), {**config, **made, "dagster_home": "/x", "load_incluster_config": True})
    assert config["run_k8s_config"]["job_spec_config"]["backoffLimit"] == 0


def test_ecs_has_the_rules_of_the_base_but_for_its_launcher_longer_times_and_logs_on_s3(
    base: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_LOGS_BUCKET", "bucket")
    document = read(DEPLOY / "ecs" / "dagster.yaml")
    launcher, logs = document.pop("run_launcher"), document.pop("compute_logs")

    slower = {"start_timeout_seconds": 300, "max_runtime_seconds": 1800 + 3600}
    assert document == {**base, "run_monitoring": {**base["run_monitoring"], **slower}}
    for section, known in ((launcher, EcsRunLauncher), (logs, S3ComputeLogManager)):
        assert getattr(import_module(section["module"]), section["class"]) is known
        check(known.config_type(), section["config"])
    variables = {one.command[0]: one.variables for one in containers() if one.where.startswith("ecs")}
    for process in ("dagster-daemon", "dagster-webserver"):
        assert variables[process]["MUSTIT_CRAWL_SLICE_SECONDS"] == "1800"
        assert variables[process]["MUSTIT_RUNS_AT_ONCE"] == str(RUNS)
        assert variables[process]["MUSTIT_CRAWLS_AT_ONCE"] == str(CRAWLS)
        assert {"DAGSTER_STORAGE_URL", "DAGSTER_LOGS_BUCKET"} <= variables[process].keys()


def test_the_versions_that_images_need_are_those_that_were_tried() -> None:
    tried = dict(re.findall(r'"(dagster[a-z0-9-]*)(?:\[redis\])?==([0-9.]+)"', (ROOT / "pyproject.toml").read_text()))
    pages = [DEPLOY / "kubernetes" / "values.yaml", ROOT / "docs/deployment.md"]
    for page in pages:
        for name, version in re.findall(r"(dagster-[a-z0-9]+)==([0-9.]+[0-9])", page.read_text()):
            assert tried[name] == version, page.name
    chart = (DEPLOY / "kubernetes" / "values.yaml").read_text()
    assert f"dagster/dagster {tried['dagster']}:" in chart
    assert f"--version {tried['dagster']} " in chart
