"""What the files under deploy/ run: every container of compose, ECS and Kubernetes, with its command and variables."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DOCKERFILE = DEPLOY / "Dockerfile"
# For what a deployment leaves to its operator.
SAMPLES = {
    "POSTGRES_PASSWORD": "secret",
    "MUSTIT_TOKEN_KEY": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
    "MUSTIT_JWT_SECRET": "only-for-tests-only-for-tests-only",
    "MUSTIT_BASE_URL": "https://m.example.com",
    "MUSTIT_PRODUCT_SERVER_URL": "https://products.example.com",
    "MUSTIT_PRODUCT_SERVER_TOKEN": "token",
    "MUSTIT_DATABASE_URL": "postgresql://mustit:secret@db.example.com/mustit",
    "MUSTIT_DAGSTER_DATABASE_URL": "postgresql://mustit:secret@db.example.com/mustit_dagster",
    "MUSTIT_REDIS_URL": "redis://redis.example.com:6379/0",
    "DAGSTER_STORAGE_URL": "postgresql+psycopg2://mustit:secret@db.example.com/mustit_dagster",
}
PARAMETERS = {
    "BaseUrl": SAMPLES["MUSTIT_BASE_URL"],
    "ProductServerUrl": SAMPLES["MUSTIT_PRODUCT_SERVER_URL"],
    "LakeUri": "s3://bucket/lake",
    "ProxyNetworks": "10.0.0.0/16",
}


@dataclass(frozen=True)
class Container:
    """One process of ours somewhere."""

    where: str
    image: str
    command: list[str]
    variables: Mapping[str, str]
    ports: list[int] = field(default_factory=list[int])
    health_check: list[str] | None = None


class _Template(yaml.SafeLoader):
    """YAML with CloudFormation's functions, each as a mapping of its name."""


def _function(loader: yaml.SafeLoader, name: str, node: yaml.Node) -> dict[str, Any]:
    value = loader.construct_scalar(node) if isinstance(node, yaml.ScalarNode) else loader.construct_sequence(node)  # type: ignore[arg-type]
    return {name: value}


_Template.add_multi_constructor("!", _function)


@cache
def stack() -> dict[str, Any]:
    """The CloudFormation template."""
    return yaml.load((DEPLOY / "ecs" / "stack.yaml").read_text(), _Template)


@cache
def compose() -> dict[str, Any]:
    """The compose file, with the operator's values in it."""
    text = (DEPLOY / "compose.yaml").read_text()
    return yaml.safe_load(re.sub(r"\$\{(\w+):[^}]*\}", lambda found: SAMPLES[found.group(1)], text))


@cache
def manifests() -> list[dict[str, Any]]:
    """The Kubernetes objects beside Dagster's chart."""
    return list(yaml.safe_load_all((DEPLOY / "kubernetes" / "mustit.yaml").read_text()))


@cache
def chart_values() -> dict[str, Any]:
    """What Dagster's chart is given."""
    return yaml.safe_load((DEPLOY / "kubernetes" / "values.yaml").read_text())


@cache
def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions, in order."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in text.splitlines()) if word]


def resolved(value: Any) -> Any:
    """A value of the template, with a sample for what is known only in AWS."""
    if isinstance(value, list):
        return [resolved(one) for one in value]
    if not isinstance(value, dict):
        return value
    if "Ref" in value:
        parameter = stack()["Parameters"].get(value["Ref"], {})
        if str(parameter.get("Type", "")).startswith("List<"):
            return ["sample"]
        return PARAMETERS.get(value["Ref"], parameter.get("Default", "sample"))
    if "Sub" in value:
        secret = re.fullmatch(r"\$\{Secret\}:(\w+)::", value["Sub"])
        return SAMPLES[secret.group(1)] if secret else value["Sub"]
    if value.keys() == {"GetAtt"}:
        return "sample"
    return {name: resolved(one) for name, one in value.items()}


def containers() -> list[Container]:
    """Every container of ours in every deployment."""
    return [*_of_compose(), *_of_ecs(), *_of_kubernetes()]


def _of_compose() -> Iterator[Container]:
    for name, service in compose()["services"].items():
        if "build" in service:
            ports = [int(port.split(":")[-1]) for port in service.get("ports", [])]
            check = service.get("healthcheck", {}).get("test")
            yield Container(
                f"compose {name}", service["image"], service["command"], service["environment"], ports, check
            )


def _of_ecs() -> Iterator[Container]:
    for name, resource in stack()["Resources"].items():
        if resource["Type"] == "AWS::ECS::TaskDefinition":
            [one] = resource["Properties"]["ContainerDefinitions"]
            variables = {each["Name"]: resolved(each["Value"]) for each in one["Environment"]}
            secrets = {each["Name"]: resolved(each["ValueFrom"]) for each in one["Secrets"]}
            ports = [each["ContainerPort"] for each in one.get("PortMappings", [])]
            check = one["HealthCheck"]["Command"]
            yield Container(f"ecs {name}", "mustit-pipeline:0.1.0", one["Command"], variables | secrets, ports, check)


def _of_kubernetes() -> Iterator[Container]:
    for manifest in manifests():
        if manifest["kind"] in ("Deployment", "Job"):
            [one] = manifest["spec"]["template"]["spec"]["containers"]
            given = {name: value for name, value in SAMPLES.items() if name.startswith("MUSTIT_")}
            variables = {each["name"]: each["value"] for each in one.get("env", [])}
            ports = [each["containerPort"] for each in one.get("ports", [])]
            check = one.get("livenessProbe", {}).get("exec", {}).get("command")
            name = f"kubernetes {manifest['metadata']['name']}"
            yield Container(name, one["image"], one["command"], given | variables, ports, check and ["CMD", *check])
