"""A name, a port or a path that two places of a deployment share is the same in both."""

import re
import shlex
from pathlib import Path
from typing import Any

import yaml
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from sqlalchemy import make_url

from mustit_pipeline.aws.policy import work_policy
from mustit_pipeline.settings import Settings
from mustit_pipeline_tests.architecture.deployments import (
    DEPLOY,
    ROOT,
    chart_values,
    compose,
    instructions,
    manifests,
    stack,
)
from mustit_pipeline_tests.architecture.test_commands_in_docs import problem_with
from mustit_pipeline_tests.architecture.test_images import CODE_SERVER, PROJECT
from mustit_pipeline_tests.conftest import MakeSettings

GRACE = Settings.model_fields["grace_seconds"].default
# Where the images of other projects listen, and where postgres:18 keeps its data.
POSTGRES_PORT, REDIS_PORT, POSTGRES_DATA = 5432, 6379, "/var/lib/postgresql"


def resources(kind: str) -> dict[str, dict[str, Any]]:
    """The stack's resources of a type, by name."""
    return {name: one["Properties"] for name, one in stack()["Resources"].items() if one["Type"] == f"AWS::{kind}"}


def test_the_image_starts_up_by_a_command_of_ours_that_its_path_has() -> None:
    found = instructions()
    [command] = [rest for word, rest in found if word == "CMD"]
    words = yaml.safe_load(command)
    assert problem_with(shlex.join(words)) is None
    assert words == ["mustit", "up"]
    [copied] = [rest.split()[-1] for word, rest in found if word == "COPY" and "--from=build" in rest]
    [variables] = [rest for word, rest in found if word == "ENV" and "MUSTIT_HOME" in rest]
    assert variables.startswith(f"PATH={copied}/bin:$PATH ")
    assert f"MUSTIT_HOME={[rest for word, rest in found if word == 'WORKDIR'][-1]}" in variables.split()


def test_the_image_is_built_and_run_by_one_python_that_the_project_supports() -> None:
    images = {rest.split()[0] for word, rest in instructions() if word == "FROM"}
    [version] = {image.removeprefix("python:").removesuffix("-slim") for image in images}
    assert Version(version) in SpecifierSet(PROJECT["requires-python"])


def test_everything_that_the_image_downloads_has_a_hash_and_is_a_wheel() -> None:
    installs = [rest for word, rest in instructions() if word == "RUN" and "pip" in rest and "install" in rest]
    assert len(installs) == 3
    for rest in installs:
        given = set(rest.split())
        assert {"--no-deps", "--no-index"} <= given or {"--require-hashes", "--only-binary"} <= given, rest


def test_compose_builds_the_image_and_keeps_what_its_volumes_are_for() -> None:
    services, volumes = compose()["services"], compose()["volumes"]
    ours = [service for service in services.values() if "build" in service]
    for service in ours:
        context = DEPLOY / service["build"]["context"]
        assert (context / service["build"]["dockerfile"]).resolve() == (DEPLOY / "Dockerfile").resolve()
        assert context.resolve() == ROOT
        assert int(service["stop_grace_period"].removesuffix("s")) > GRACE
    kept = [volume for service in services.values() for volume in service.get("volumes", [])]
    assert {volume.split(":")[0] for volume in kept if not volume.startswith(".")} == volumes.keys()
    assert services["postgres"]["volumes"][0] == f"postgres:{POSTGRES_DATA}"


def test_compose_reaches_the_servers_that_it_starts() -> None:
    services = compose()["services"]
    account = services["postgres"]["environment"]
    made = re.findall(r"CREATE DATABASE (\w+);", (DEPLOY / "databases.sql").read_text())
    for service in (one for one in services.values() if "build" in one):
        variables = service["environment"]
        business, dagster = (make_url(variables[f"MUSTIT_{name}"]) for name in ("DATABASE_URL", "DAGSTER_DATABASE_URL"))
        for url in (business, dagster):
            assert (url.host, url.port) == ("postgres", POSTGRES_PORT)
            assert (url.username, url.password) == (account["POSTGRES_USER"], account["POSTGRES_PASSWORD"])
        assert (business.database, [dagster.database]) == (account["POSTGRES_DB"], made)
        assert variables["MUSTIT_REDIS_URL"] == f"redis://redis:{REDIS_PORT}/0"
    healthy = services["postgres"]["healthcheck"]["test"]
    # The second database is made last.
    assert healthy == ["CMD", "pg_isready", f"--username={account['POSTGRES_USER']}", f"--dbname={made[0]}"]
    assert services["redis"]["healthcheck"]["test"] == ["CMD", "redis-cli", "ping"]


def test_a_task_on_ecs_gets_each_secret_under_its_own_name() -> None:
    told = set(re.findall(r"[A-Z_]{4,}", stack()["Parameters"]["Secret"]["Description"])) - {"ARN"}
    given: set[str] = set()
    for task in resources("ECS::TaskDefinition").values():
        for one in task["ContainerDefinitions"][0]["Secrets"]:
            assert one["ValueFrom"] == {"Sub": f"${{Secret}}:{one['Name']}::"}
            given.add(one["Name"])
    assert given == told
    [policy] = resources("IAM::Role")["ExecutionRole"]["Policies"]
    [statement] = policy["PolicyDocument"]["Statement"]
    assert (statement["Action"], statement["Resource"]) == ("secretsmanager:GetSecretValue", {"Ref": "Secret"})


def test_the_load_balancers_of_ecs_lead_to_ports_that_containers_open() -> None:
    tasks = resources("ECS::TaskDefinition")
    led: dict[str, str] = {}
    for service in resources("ECS::Service").values():
        [container] = tasks[service["TaskDefinition"]["Ref"]]["ContainerDefinitions"]
        for one in service.get("LoadBalancers", []):
            assert one["ContainerName"] == container["Name"]
            assert {"ContainerPort": one["ContainerPort"]} in container["PortMappings"]
            led[one["TargetGroupArn"]["Ref"]] = container["Name"]
    assert led == {"ApiTargetGroup": "api", "UiTargetGroup": "webserver"}


def test_workers_on_ecs_are_scaled_by_metrics_that_aws_has_and_by_their_own_number() -> None:
    [target] = resources("ApplicationAutoScaling::ScalableTarget").values()
    assert target["ResourceId"] == {"Sub": "service/${Cluster}/${WorkerService.Name}"}
    [by_queue] = [
        one["TargetTrackingScalingPolicyConfiguration"]
        for one in resources("ApplicationAutoScaling::ScalingPolicy").values()
        if one["PolicyName"] == "queue-depth"
    ]
    page = (ROOT / "docs" / "deployment.md").read_text()
    assert f"| {by_queue['TargetValue']} messages in `mustit-crawler-tasks.fifo` for each worker" in page
    *counted, computed = by_queue["CustomizedMetricSpecification"]["Metrics"]
    metrics = [one["MetricStat"]["Metric"] for one in counted]
    assert [(one["Namespace"], one["MetricName"], [each["Name"] for each in one["Dimensions"]]) for one in metrics] == [
        ("AWS/SQS", "ApproximateNumberOfMessagesVisible", ["QueueName"]),
        ("AWS/SQS", "ApproximateNumberOfMessagesNotVisible", ["QueueName"]),
        ("ECS/ContainerInsights", "RunningTaskCount", ["ClusterName", "ServiceName"]),
    ]
    assert [each["Value"] for each in metrics[-1]["Dimensions"]] == [
        {"Ref": "Cluster"},
        {"GetAtt": "WorkerService.Name"},
    ]
    assert set(re.findall(r"[a-z]+", computed["Expression"])) == {one["Id"] for one in counted}
    [settings] = [one["ClusterSettings"] for one in resources("ECS::Cluster").values()]
    # Without it there is no RunningTaskCount.
    assert settings == [{"Name": "containerInsights", "Value": "enabled"}]


def test_tasks_on_ecs_may_do_what_mustit_aws_setup_prints(make_settings: MakeSettings) -> None:
    logs = {"compute_logs_uri": "s3://logs", "lake_uri": "s3://lake", "task_transport": "sqs"}
    wanted = rights(work_policy(make_settings(**logs)))
    lake, queues = (resources("IAM::Policy")[name] for name in ("LakePolicy", "QueuePolicy"))
    tasks = resources("ECS::TaskDefinition")

    assert rights(lake["PolicyDocument"]) >= {one for one in wanted if one[0].startswith("s3:")}
    assert rights(queues["PolicyDocument"]) == {one for one in wanted if one[0].startswith("sqs:")}
    assert queues["Roles"] == [{"Ref": "TaskRole"}, {"Ref": "RunRole"}]
    # What reads the marketplace's answers may start no task of ECS, but for runs, which have the daemon's role.
    assert [one["Roles"] for one in (lake, resources("IAM::Policy")["RunPolicy"])] == [[{"Ref": "RunRole"}]] * 2
    assert {name: one["TaskRoleArn"]["GetAtt"].partition(".")[0] for name, one in tasks.items()} == {
        "DaemonTask": "RunRole",
        "WebserverTask": "RunRole",
        "ApiTask": "TaskRole",
        "WorkerTask": "TaskRole",
    }


def rights(policy: dict[str, Any]) -> set[tuple[str, str]]:
    """Each action of a policy with the name of what it is about; the template's parameters by their defaults."""
    names = {"LakeBucket": "lake", "LogsBucket": "logs"}
    names |= {name: str(one["Default"]) for name, one in stack()["Parameters"].items() if "Default" in one}
    found: set[tuple[str, str]] = set()
    for statement in policy["Statement"]:
        for resource in statement["Resource"]:
            text = resource if isinstance(resource, str) else resource["Sub"]
            about = re.sub(
                r"\$\{(\w+)\}",
                lambda name: names[name[1]],
                text.replace("${AWS::", "${")
                .replace("${Partition}", "aws")
                .replace("${Region}", "*")
                .replace("${AccountId}", "*"),
            )
            found |= {(action, about) for action in statement["Action"]}
    return found


def test_kubernetes_knows_one_secret_one_image_and_one_port_of_the_code_server() -> None:
    given = chart_values()
    [code] = given["dagster-user-deployments"]["deployments"]
    image = f"{code['image']['repository']}:{code['image']['tag']}"
    [exposed] = [rest.split() for word, rest in instructions() if word == "EXPOSE"]
    assert code["port"] == CODE_SERVER
    assert str(code["port"]) in exposed
    assert code["dagsterApiGrpcArgs"] == ["-m", "mustit_pipeline.definitions"]
    pods = [one["spec"]["template"]["spec"] for one in manifests() if one["kind"] in ("Deployment", "Job")]
    for pod in pods:
        [container] = pod["containers"]
        assert container["image"] == image
        assert [{"name": one["secretRef"]["name"]} for one in container["envFrom"]] == code["envSecrets"]
    launched = given["runLauncher"]["config"]["k8sRunLauncher"]["runK8sConfig"]
    assert launched["podSpecConfig"]["terminationGracePeriodSeconds"] > GRACE


def test_the_unit_of_a_run_worker_starts_a_command_of_the_image() -> None:
    unit = (DEPLOY / "celery" / "mustit-run-worker.service").read_text()
    [command] = re.findall(r"^ExecStart=(\S+/)?(mustit .*)$", unit, re.MULTILINE)
    [copied] = [rest.split()[-1] for word, rest in instructions() if word == "COPY" and "--from=build" in rest]
    assert Path(command[0]) == Path(copied) / "bin"
    assert problem_with(command[1]) is None
