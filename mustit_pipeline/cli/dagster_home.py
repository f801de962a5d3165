"""DAGSTER_HOME: the one dagster.yaml of every deployment, with the run launcher of the settings."""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import yaml

from mustit_pipeline.embedded import has_redis
from mustit_pipeline.settings import Settings, SettingsError

# A wheel has these files inside the package, a checkout in its root.
PACKED = Path(__file__).parents[1] / "deployed"
ROOT = PACKED if PACKED.is_dir() else Path(__file__).parents[2]
BASE = ROOT / "dagster.yaml"
WORKSPACE = ROOT / "workspace.yaml"
CELERY = ROOT / "deploy" / "celery" / "run_launcher.yaml"
OWN = "command.yaml"
UPLOAD_SECONDS = 10
# How much longer than its slice a crawl may take: change sets of many products, a slow database.
BEYOND_SLICE_SECONDS = 3600
MADE = "# Made by `mustit` at every start, from its own dagster.yaml and deploy/.\n"


def make_dagster_home(settings: Settings) -> Path:
    """The folder with its dagster.yaml; a file in a DAGSTER_HOME that the user set is not changed."""
    given = os.environ.get("DAGSTER_HOME")
    home = Path(given) if given else settings.home / "dagster"
    home.mkdir(parents=True, exist_ok=True)
    target = home / "dagster.yaml"
    if given is None or not target.exists():
        _write(target, _composed(settings))
    return home


def make_own_dagster_yaml(settings: Settings, home: Path) -> tuple[Path, str]:
    """The folder and name of the dagster.yaml for runs inside a command, whose output stays on the terminal."""
    composed = yaml.safe_load((home / "dagster.yaml").read_text())
    module = "dagster.core.storage.noop_compute_log_manager"
    composed["compute_logs"] = {"module": module, "class": "NoOpComputeLogManager"}
    folder = settings.home / "dagster"
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / OWN, composed)
    return folder, OWN


def _write(target: Path, composed: dict[str, Any]) -> None:
    """Replace the file atomically: other processes read it at any time."""
    fresh = target.with_suffix(f".{os.getpid()}")
    fresh.write_text(MADE + yaml.safe_dump(composed, sort_keys=False))
    fresh.replace(target)


def _composed(settings: Settings) -> dict[str, Any]:
    composed = _read(BASE)
    limits = composed["run_queue"]["tag_concurrency_limits"]
    backfills = sum(limit["limit"] for limit in limits if limit["key"] == "dagster/backfill")
    for limit in limits:
        if limit["key"] == "dagster/partition" and "value" not in limit:
            limit["limit"] = settings.crawls_at_once + backfills
    composed["run_monitoring"]["max_runtime_seconds"] = int(settings.crawl_slice_seconds) + BEYOND_SLICE_SECONDS
    if settings.run_launcher == "celery":
        _require_celery(settings)
        composed |= _read(CELERY)
    return composed | _compute_logs(settings)


def _require_celery(settings: Settings) -> None:
    if find_spec("dagster_celery") is None:
        raise SettingsError(
            "MUSTIT_RUN_LAUNCHER=celery needs dagster-celery: pip install 'mustit-pipeline[celery]'",
            korean="MUSTIT_RUN_LAUNCHER=celery에는 dagster-celery가 필요합니다: pip install 'mustit-pipeline[celery]'",
        )
    if settings.broker_url is None and settings.embedded_redis and not has_redis():
        raise SettingsError(
            "MUSTIT_RUN_LAUNCHER=celery needs a Redis, and no redis-server can be started here: install one, or set "
            "MUSTIT_REDIS_URL or MUSTIT_BROKER_URL",
            korean="MUSTIT_RUN_LAUNCHER=celery에는 Redis가 필요하지만 이 호스트에는 redis-server가 없습니다. "
            "설치하거나 MUSTIT_REDIS_URL 또는 MUSTIT_BROKER_URL을 설정하세요",
        )


def _compute_logs(settings: Settings) -> dict[str, Any]:
    """Where the output of runs is stored, so that the UI can show that of other hosts."""
    uri = settings.compute_logs_uri
    if uri is None:
        return {}
    if not uri.startswith("s3://"):
        folder = os.path.abspath(os.path.expanduser(uri))
        local = "dagster.core.storage.local_compute_log_manager"
        return {"compute_logs": {"module": local, "class": "LocalComputeLogManager", "config": {"base_dir": folder}}}
    bucket, _, prefix = uri.removeprefix("s3://").strip("/").partition("/")
    given = {"prefix": prefix, "endpoint_url": settings.aws_endpoint_url}
    config = {
        "bucket": bucket,
        # Files are deleted here once they are uploaded.
        "local_dir": str(settings.home / "logs" / "runs"),
        "upload_interval": UPLOAD_SECONDS,
        **{name: value for name, value in given.items() if value},
    }
    module = "dagster_aws.s3.compute_log_manager"
    return {"compute_logs": {"module": module, "class": "S3ComputeLogManager", "config": config}}


def _read(path: Path) -> dict[str, Any]:
    try:
        return yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise SettingsError(
            f"DAGSTER_HOME is not set and there is no {path.relative_to(ROOT)} in {ROOT}",
            korean=f"DAGSTER_HOME이 설정되지 않았고 {ROOT}에 {path.relative_to(ROOT)}이(가) 없습니다",
        ) from None


def celery_address(url: str) -> str:
    """A Redis address as Celery writes it: it has its own scheme for sockets and databases."""
    parts = urlsplit(url)
    if parts.scheme != "unix":
        return url
    query = [("virtual_host" if name == "db" else name, value) for name, value in parse_qsl(parts.query)]
    return f"redis+socket://{parts.path}?{urlencode(query)}".rstrip("?")
