"""The documentation of every setting, made from the settings themselves."""

from collections.abc import Iterable

from pydantic_settings import BaseSettings

from mustit_pipeline.settings.agents import AgentSettings
from mustit_pipeline.settings.api import ApiSettings
from mustit_pipeline.settings.aws import AwsSettings
from mustit_pipeline.settings.checks import CheckSettings
from mustit_pipeline.settings.crawls import CrawlSettings
from mustit_pipeline.settings.delivery import DeliverySettings
from mustit_pipeline.settings.deployment import DeploymentSettings
from mustit_pipeline.settings.marketplace import MarketplaceCallSettings
from mustit_pipeline.settings.recrawl import RecrawlSettings
from mustit_pipeline.settings.upkeep import UpkeepSettings
from mustit_pipeline.settings.whole import PREFIX, Settings

# What people set, and why they do.
FIRST = {
    "base_url": "To crawl the real marketplace",
    "product_server_url": "To tell the real product server",
    "product_server_token": "The product server refuses calls without one",
    "alert_urls": "To hear of trouble; without it alerts are only listed",
    "database_url": "To keep the data on a server that others back up, or to use several hosts",
    "dagster_database_url": "Must be set with DATABASE_URL",
    "token_key": "Must be set with DATABASE_URL: session tokens are encrypted with it, on every host alike",
    "jwt_secret": "Must be set with DATABASE_URL",
    "redis_url": "Several hosts count their requests together, which costs PostgreSQL less then",
    "home": "To keep the data outside of the working folder",
    "requests_per_hour": "The marketplace allows less, or more",
    "max_concurrent_requests": "A worker's host can do more, or has to do less",
    "max_age_hours": "A promise of fresher data, or fewer requests",
    "crawls_at_once": "To crawl more sellers side by side; raise RUNS_AT_ONCE by as many",
}
SUBJECTS: dict[str, type[BaseSettings] | None] = {
    "Servers and data": None,
    "Marketplace": MarketplaceCallSettings,
    "Crawls": CrawlSettings,
    "Agents": AgentSettings,
    "Recrawl policy": RecrawlSettings,
    "Delivery": DeliverySettings,
    "Checks and alerts": CheckSettings,
    "Upkeep": UpkeepSettings,
    "Deployment": DeploymentSettings,
    "API and console": ApiSettings,
    "AWS": AwsSettings,
}


def settings_page() -> str:
    """The settings that people set and why, then each setting by its subject."""
    lines = [
        "# Settings",
        "",
        "Read once from the environment. A wrong value stops the start with a message that names the variable.",
        "This page is made by `python -m mustit_pipeline.settings`.",
        "",
        "## What people set",
        "",
        "`make up` and `make demo` need none of them.",
        "",
        "| variable | default | what it is | why set it |",
        "|---|---|---|---|",
        *(f"{_row(name)} {reason} |" for name, reason in FIRST.items()),
    ]
    for subject, part in SUBJECTS.items():
        lines += ["", f"## {subject}", "", "| variable | default | what it is |", "|---|---|---|"]
        lines += (_row(name) for name in _names(part) if name not in FIRST)
    return "\n".join(lines) + "\n"


def _names(part: type[BaseSettings] | None) -> Iterable[str]:
    if part is not None:
        return part.model_fields
    elsewhere = {name for other in SUBJECTS.values() if other is not None for name in other.model_fields}
    return (name for name in Settings.model_fields if name not in elsewhere)


def _row(name: str) -> str:
    field = Settings.model_fields[name]
    default = "" if field.default in (None, "") else f"`{field.default}`"
    return f"| `{PREFIX}{name.upper()}` | {default} | {field.description} |"
