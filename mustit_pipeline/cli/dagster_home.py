"""DAGSTER_HOME: the one dagster.yaml of every deployment, with the run launcher that the settings ask for."""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import yaml

from mustit_pipeline.settings import Settings, SettingsError

ROOT = Path(__file__).parents[2]
BASE = ROOT / "dagster.yaml"
CELERY = ROOT / "deploy" / "celery" / "run_launcher.yaml"
MADE = "# Made by `mustit` at every start, from the dagster.yaml and deploy/ of its folder.\n"


def make_dagster_home(settings: Settings) -> Path:
    """The folder with its dagster.yaml; one that somebody else's DAGSTER_HOME holds already stays as it is."""
    given = os.environ.get("DAGSTER_HOME")
    home = Path(given) if given else settings.home / "dagster"
    home.mkdir(parents=True, exist_ok=True)
    target = home / "dagster.yaml"
    if given is None or not target.exists():
        fresh = target.with_suffix(f".{os.getpid()}")
        fresh.write_text(MADE + yaml.safe_dump(_composed(settings), sort_keys=False))
        fresh.replace(target)
    return home


def _composed(settings: Settings) -> dict[str, Any]:
    composed = _read(BASE)
    limits = composed["run_queue"]["tag_concurrency_limits"]
    backfills = sum(limit["limit"] for limit in limits if limit["key"] == "dagster/backfill")
    for limit in limits:
        if limit["key"] == "dagster/partition" and "value" not in limit:
            limit["limit"] = settings.crawls_at_once + backfills
    if settings.run_launcher == "celery":
        if find_spec("dagster_celery") is None:
            raise SettingsError(
                "MUSTIT_RUN_LAUNCHER=celery needs dagster-celery: pip install 'mustit-pipeline[celery]'"
            )
        composed |= _read(CELERY)
    return composed


def _read(path: Path) -> dict[str, Any]:
    try:
        return yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise SettingsError(f"DAGSTER_HOME is not set and there is no {path.relative_to(ROOT)} in {ROOT}") from None


def celery_address(url: str) -> str:
    """A Redis address as Celery writes it: it has names of its own for a socket and its database."""
    parts = urlsplit(url)
    if parts.scheme != "unix":
        return url
    query = [("virtual_host" if name == "db" else name, value) for name, value in parse_qsl(parts.query)]
    return f"redis+socket://{parts.path}?{urlencode(query)}".rstrip("?")
