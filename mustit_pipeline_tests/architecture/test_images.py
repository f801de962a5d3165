"""Every command, variable, port and path that image, compose file, ECS stack and Kubernetes manifests name exists."""

import re
import shlex
import sys
import tomllib
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points, requires
from typing import Any

import pytest
from botocore.loaders import Loader
from botocore.model import ServiceModel
from botocore.validate import ParamValidator
from kubernetes import client
from packaging.requirements import Requirement

from mustit_pipeline.crawling.worker import MOST_HELD
from mustit_pipeline.settings import Settings, load_settings, unknown_variables
from mustit_pipeline_tests.architecture.deployments import (
    DEPLOY,
    ROOT,
    Container,
    chart_values,
    compose,
    containers,
    instructions,
    manifests,
    resolved,
    stack,
)
from mustit_pipeline_tests.architecture.test_commands_in_docs import problem_with

API, UI = (Settings.model_fields[name].default for name in ("api_port", "dagster_port"))
CODE_SERVER = 3030
CONTAINERS = {one.where: one for one in containers()}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Fargate's: CPU units, and the memory that goes with them in MB.
FARGATE = {512: range(1024, 4097, 1024), 1024: range(2048, 8193, 1024)}
NO_RIGHTS = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
ASKED = re.compile(r"http://127\.0\.0\.1:(\d+)(/[\w/]+)")


def pinned(lock: str) -> set[str]:
    """The names of a lock file."""
    return {name.lower() for name in re.findall(r"^([\w.-]+)(?:\[.*?\])?==", (ROOT / lock).read_text(), re.MULTILINE)}


@pytest.fixture(params=CONTAINERS)
def container(request: pytest.FixtureRequest) -> Container:
    return CONTAINERS[request.param]


@pytest.fixture
def api_paths() -> set[str]:
    """What the API answers to those who ask whether it works."""
    routes = import_module("mustit_pipeline.api.routes.health").router.routes
    return {str(getattr(route, "path", "")) for route in routes}


def test_every_process_is_deployed_somewhere() -> None:
    """Those of ours by hand, and Dagster's own on ECS; on Kubernetes the chart has them."""
    commands = {tuple(one.command[:2]) for one in CONTAINERS.values()}
    assert commands == {
        ("mustit", "up"),
        ("mustit", "serve"),
        ("mustit", "worker"),
        ("mustit", "db"),
        ("dagster-daemon", "run"),
        ("dagster-webserver", "-h"),
    }


def test_every_command_of_ours_can_be_typed(container: Container) -> None:
    for words in (container.command, (container.health_check or [])[1:]):
        if words and words[0] == "mustit":
            assert problem_with(shlex.join(words)) is None


def test_every_command_of_dagster_s_is_one_that_it_knows(container: Container) -> None:
    for words in (container.command, (container.health_check or [])[1:]):
        if words and words[0].startswith("dagster"):
            [script] = entry_points(group="console_scripts", name=words[0])
            command: Any = sys.modules[script.load().__module__].cli
            rest = words[1:]
            if hasattr(command, "commands"):
                command, rest = command.commands[rest[0]], rest[1:]
            # The image's paths are not here; that its options exist is what can be seen.
            _, left, _ = command.make_parser(command.context_class(command)).parse_args(rest)
            assert left == []


def test_the_variables_of_a_container_are_settings_that_fit_together(
    container: Container, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in container.variables.items():
        monkeypatch.setenv(name, value)

    assert unknown_variables(container.variables) == {}
    settings = load_settings()

    assert not settings.embedded
    assert settings.marketplace_url
    for port in container.ports:
        assert port == (UI if container.command[0] == "dagster-webserver" else API)


def test_only_what_is_behind_a_proxy_listens_to_others(container: Container) -> None:
    open_to_others = container.variables.get("MUSTIT_API_HOST") == "0.0.0.0"

    assert open_to_others == bool(container.variables.get("MUSTIT_API_BEHIND_PROXY"))
    assert open_to_others == (API in container.ports)


def test_a_health_check_asks_a_port_and_path_that_answer(container: Container, api_paths: set[str]) -> None:
    for port, path in ASKED.findall(" ".join(container.health_check or [])):
        if int(port) == API:
            assert path in api_paths
        else:
            assert (int(port), path) == (UI, "/server_info")
            assert "/server_info" in (ROOT / "mustit_pipeline" / "cli" / "up.py").read_text()


def test_kubernetes_asks_the_api_whether_it_lives_and_is_ready(api_paths: set[str]) -> None:
    [api] = [one for one in manifests() if one["metadata"]["name"] == "mustit-api" and one["kind"] == "Deployment"]
    [one] = api["spec"]["template"]["spec"]["containers"]
    asked = {probe: one[probe]["httpGet"]["path"] for probe in ("livenessProbe", "readinessProbe")}
    assert asked == {"livenessProbe": "/health/live", "readinessProbe": "/health/ready"}
    assert set(asked.values()) <= api_paths


def test_every_container_has_a_health_check_but_what_ends_by_itself() -> None:
    unchecked = [where for where, one in CONTAINERS.items() if one.health_check is None]
    # The API's on Kubernetes is no command.
    assert unchecked == ["compose schema", "kubernetes mustit-schema", "kubernetes mustit-api"]
    assert all("healthcheck" in compose()["services"][name] for name in ("postgres", "redis"))


def test_nothing_of_ours_is_asked_for_by_the_name_of_a_registry() -> None:
    version = PROJECT["version"]
    assert {one.image for one in CONTAINERS.values()} == {f"mustit-pipeline:{version}"}
    images = [service["image"] for service in compose()["services"].values()]
    images += [rest.split()[0] for word, rest in instructions() if word == "FROM"]
    assert not [image for image in images if "/" in image]
    assert set(images) == {"postgres:18", "redis:8", f"mustit-pipeline:{version}", "python:3.12-slim"}


def test_compose_waits_for_servers_and_schema_before_anything_else_starts() -> None:
    services = compose()["services"]

    assert {name: one["condition"] for name, one in services["schema"]["depends_on"].items()} == {
        "postgres": "service_healthy",
        "redis": "service_healthy",
    }
    for name in ("control", "worker"):
        assert services[name]["depends_on"] == {"schema": {"condition": "service_completed_successfully"}}
    assert services["worker"]["deploy"]["replicas"] == 2
    [source, target, _] = services["postgres"]["volumes"][1].split(":")
    assert "CREATE DATABASE mustit_dagster;" in (DEPLOY / source).read_text()
    assert target.startswith("/docker-entrypoint-initdb.d/")
    assert services["control"]["ports"] == [f"127.0.0.1:{API}:{API}"]


def test_the_image_copies_what_is_there_and_lets_nothing_else_in() -> None:
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    let_in = {line[1:] for line in ignored if line.startswith("!")}
    copied = {
        source
        for word, rest in instructions()
        if word == "COPY" and "--from" not in rest
        for source in [part for part in rest.split() if not part.startswith("--")][:-1]
    }
    assert {source.split("/")[0] for source in copied} == let_in
    assert [source for source in copied if not (ROOT / source).exists()] == []
    assert ignored[1] == "*"


def test_the_image_does_not_run_as_root_and_has_the_paths_that_deployments_rely_on() -> None:
    found = instructions()
    environment = " ".join(rest for word, rest in found if word == "ENV")
    [home] = re.findall(r"MUSTIT_HOME=(\S+)", environment)
    created = " ".join(rest for word, rest in found if word == "RUN")

    assert ("USER", "mustit") in found
    assert f"--uid 10001 --home-dir {home} --create-home mustit" in created
    assert [rest for word, rest in found if word == "EXPOSE"] == [f"{API} {UI} {CODE_SERVER}"]
    assert compose()["services"]["control"]["volumes"] == [f"control:{home}"]
    [kept] = [rest.split()[-1] for word, rest in found if word == "COPY" and "deploy/ecs/dagster.yaml" in rest]
    for one in CONTAINERS.values():
        if one.command[0].startswith("dagster"):
            assert one.variables["DAGSTER_HOME"] == kept.rstrip("/")
            assert one.command[one.command.index("-w") + 1] == f"{kept}workspace.yaml"


def test_a_container_is_not_root_gains_no_rights_and_writes_to_its_volumes_alone() -> None:
    """And none takes more memory than a host has to spare."""
    [home] = re.findall(r"MUSTIT_HOME=(\S+)", " ".join(rest for word, rest in instructions() if word == "ENV"))
    for name, service in compose()["services"].items():
        if "build" in service:
            assert service["read_only"], name
            assert (service["cap_drop"], service["security_opt"]) == (["ALL"], ["no-new-privileges:true"])
            written = [*service["tmpfs"], *(volume.partition(":")[2] for volume in service.get("volumes", []))]
            assert sorted(one.partition(":")[0] for one in written) == ["/tmp", home]
            assert service["mem_limit"]
    for manifest in manifests():
        if manifest["kind"] in ("Deployment", "Job"):
            pod = manifest["spec"]["template"]["spec"]
            [one] = pod["containers"]
            assert (pod["securityContext"]["runAsUser"], pod["securityContext"]["runAsNonRoot"]) == (10001, True)
            assert pod["securityContext"]["fsGroup"] == 10001, "it could not write to its volumes"
            assert one["securityContext"] == {"readOnlyRootFilesystem": True, **NO_RIGHTS}
            assert sorted(mount["mountPath"] for mount in one["volumeMounts"]) == ["/tmp", home]
            assert [mount["name"] for mount in one["volumeMounts"]] == [volume["name"] for volume in pod["volumes"]]
            assert one["resources"]["limits"]["memory"]
    [code] = chart_values()["dagster-user-deployments"]["deployments"]
    run = chart_values()["runLauncher"]["config"]["k8sRunLauncher"]["runK8sConfig"]
    for pod, container in (
        (code["podSecurityContext"], code),
        (run["podSpecConfig"]["securityContext"], run["containerConfig"]),
    ):
        assert (pod["runAsUser"], pod["runAsNonRoot"]) == (10001, True)
        assert container["securityContext"] == NO_RIGHTS
        assert container["resources"]["limits"]["memory"]


def test_the_locks_have_everything_that_the_image_installs() -> None:
    locked = pinned("requirements.lock")
    wanted = [*PROJECT["dependencies"], *(one for extra in PROJECT["optional-dependencies"].values() for one in extra)]
    assert {Requirement(one).name.lower() for one in wanted} - locked == set()

    [builders] = [rest for word, rest in instructions() if word == "RUN" and rest.startswith("awk")]
    named = set(re.findall(r"[a-z-]+", re.findall(r"\^\(([a-z|-]+)\)==", builders)[0]))
    needed = {Requirement(one).name for one in requires("hatchling") or [] if Requirement(one).marker is None}
    assert named == {"hatchling"} | needed
    assert named <= pinned("requirements-dev.lock")


def test_every_name_in_the_stack_leads_to_a_parameter_or_a_resource() -> None:
    text = (DEPLOY / "ecs" / "stack.yaml").read_text()
    known = stack()["Parameters"].keys() | stack()["Resources"].keys()
    known |= {"AWS::Region", "AWS::Partition", "AWS::AccountId"}
    named = set(re.findall(r"!Ref ([\w:]+)", text)) | set(re.findall(r"!GetAtt (\w+)", text))
    named |= {name.split(".")[0] for name in re.findall(r"\$\{([\w.:]+)\}", text)}

    assert named <= known
    assert stack()["Parameters"].keys() <= named | set(re.findall(r"\[!Ref (\w+)", text))
    # CloudFormation does not take them.
    assert not re.findall(r"[:-] [&*]\w", text)


@cache
def model_of(service: str) -> ServiceModel:
    """What botocore knows of a service: megabytes of JSON."""
    return ServiceModel(Loader().load_service_model(service, "service-2"))


def validate(service: str, operation: str, properties: dict[str, Any]) -> None:
    """botocore's own look at the parameters of a call."""
    shape: Any = model_of(service).operation_model(operation).input_shape
    assert ParamValidator().validate(properties, shape).generate_report() == ""
    assert unknown(properties, shape) == []


def unknown(value: Any, shape: Any) -> list[str]:
    """Names that the call has no parameter for, at any depth; the validator passes over them."""
    if shape.type_name == "structure":
        inner = [
            name for key in value.keys() & shape.members.keys() for name in unknown(value[key], shape.members[key])
        ]
        return sorted(value.keys() - shape.members.keys()) + inner
    if shape.type_name == "list":
        return [name for one in value for name in unknown(one, shape.member)]
    return []


def as_the_api_writes_it(value: Any) -> Any:
    """CloudFormation's names as those of the ECS API; log options are names of their own."""
    if isinstance(value, list):
        return [as_the_api_writes_it(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {name[0].lower() + name[1:]: as_the_api_writes_it(one) for name, one in value.items()}


def test_task_definitions_and_services_are_such_as_ecs_takes() -> None:
    for name, resource in stack()["Resources"].items():
        properties = as_the_api_writes_it(resolved(resource["Properties"]))
        if resource["Type"] == "AWS::ECS::TaskDefinition":
            validate("ecs", "RegisterTaskDefinition", properties)
            assert int(properties["memory"]) in FARGATE[int(properties["cpu"])]
            [one] = properties["containerDefinitions"]
            assert one["stopTimeout"] > Settings.model_fields["grace_seconds"].default, name
        if resource["Type"] == "AWS::ECS::Service":
            properties["desiredCount"] = int(properties["desiredCount"])
            validate("ecs", "CreateService", {**properties, "serviceName": name})
    daemon = stack()["Resources"]["DaemonService"]["Properties"]
    assert (daemon["DesiredCount"], daemon["DeploymentConfiguration"]["MaximumPercent"]) == (1, 100)


def test_workers_scale_on_cpu_and_on_the_depth_of_the_queue() -> None:
    resources = stack()["Resources"]
    policies = [one["Properties"] for one in resources.values() if one["Type"].endswith("ScalingPolicy")]
    target = {"ServiceNamespace": "ecs", "ResourceId": "x", "ScalableDimension": "ecs:service:DesiredCount"}
    for policy in policies:
        assert policy["ScalingTargetId"] == {"Ref": "Workers"}
        given = {name: value for name, value in resolved(policy).items() if name != "ScalingTargetId"}
        validate("application-autoscaling", "PutScalingPolicy", {**given, **target})
    by_cpu, by_queue = (policy["TargetTrackingScalingPolicyConfiguration"] for policy in policies)
    assert by_cpu["TargetValue"] == 70
    [*depths, _, _] = resolved(by_queue)["CustomizedMetricSpecification"]["Metrics"]
    for depth in depths:
        [queue] = depth["MetricStat"]["Metric"]["Dimensions"]
        assert queue["Value"] == Settings.model_fields["task_queue_name"].default
    assert [one["MetricStat"]["Metric"]["MetricName"] for one in depths] == [
        "ApproximateNumberOfMessagesVisible",
        "ApproximateNumberOfMessagesNotVisible",
    ]
    assert by_queue["TargetValue"] < MOST_HELD, "a busy worker would never be too many messages"
    assert resources["Workers"]["Properties"]["ResourceId"] == {"Sub": "service/${Cluster}/${WorkerService.Name}"}


def test_kubernetes_knows_every_field_of_the_manifests() -> None:
    kinds = {
        "Job": "V1Job",
        "Deployment": "V1Deployment",
        "Service": "V1Service",
        "HorizontalPodAutoscaler": "V2HorizontalPodAutoscaler",
    }
    api: Any = client.ApiClient()
    for manifest in manifests():
        understood = api._ApiClient__deserialize(manifest, kinds[manifest["kind"]])
        assert api.sanitize_for_serialization(understood) == manifest


def test_the_objects_of_kubernetes_fit_together() -> None:
    by_kind = {(one["kind"], one["metadata"]["name"]): one["spec"] for one in manifests()}
    for (kind, _), spec in by_kind.items():
        if kind == "Deployment":
            assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
            grace = spec["template"]["spec"]["terminationGracePeriodSeconds"]
            assert grace > Settings.model_fields["grace_seconds"].default
    service = by_kind["Service", "mustit-api"]
    assert service["selector"] == by_kind["Deployment", "mustit-api"]["selector"]["matchLabels"]
    assert service["ports"] == [{"name": "http", "port": API, "targetPort": "http"}]
    scaled = by_kind["HorizontalPodAutoscaler", "mustit-worker"]["scaleTargetRef"]
    assert (scaled["kind"], scaled["name"]) in by_kind


def test_workers_scale_on_kubernetes_by_a_metric_that_is_exported() -> None:
    [scaler] = [one["spec"] for one in manifests() if one["kind"] == "HorizontalPodAutoscaler"]
    by_cpu, by_tasks = scaler["metrics"]

    assert by_cpu["resource"]["target"]["averageUtilization"] == 70
    assert by_tasks["external"]["metric"] == {"name": "mustit_tasks_waiting"}
    assert_exported("mustit_tasks_waiting")


def assert_exported(metric: str) -> None:
    """The API's /metrics has a gauge of this name, without labels."""
    source = (ROOT / "mustit_pipeline" / "monitoring" / "exposition.py").read_text()
    assert re.search(rf'_gauge\("{metric}", ', source)
