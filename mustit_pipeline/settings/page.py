"""The documentation of every setting, made from the settings themselves."""

from mustit_pipeline.settings.agents import AgentSettings
from mustit_pipeline.settings.aws import AwsSettings
from mustit_pipeline.settings.checks import CheckSettings
from mustit_pipeline.settings.delivery import DeliverySettings
from mustit_pipeline.settings.deployment import DeploymentSettings
from mustit_pipeline.settings.upkeep import UpkeepSettings
from mustit_pipeline.settings.whole import PREFIX, Settings


def settings_page() -> str:
    """The documentation of every setting, made from the settings themselves."""
    lines = [
        "# Settings",
        "",
        "Read once from the environment. A wrong value stops the start with a message that names the variable.",
        "This page is made by `python -m mustit_pipeline.settings`.",
        "",
        "| variable | default | what it is |",
        "|---|---|---|",
    ]
    # A base class's fields come first, but people look for the servers first.
    parts = (DeliverySettings, AgentSettings, UpkeepSettings, DeploymentSettings, AwsSettings, CheckSettings)
    later = {name for part in parts for name in part.model_fields}
    fields = sorted(Settings.model_fields.items(), key=lambda entry: entry[0] in later)
    for name, field in fields:
        default = "" if field.default in (None, "") else f"`{field.default}`"
        lines.append(f"| `{PREFIX}{name.upper()}` | {default} | {field.description} |")
    return "\n".join(lines) + "\n"
