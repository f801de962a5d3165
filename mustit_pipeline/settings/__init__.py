"""Every setting in one place, read once from the environment (prefix MUSTIT_)."""

from mustit_pipeline.settings.logs import LogSettings
from mustit_pipeline.settings.made_secrets import SigningKeys, TokenKey
from mustit_pipeline.settings.secret_values import secret_values
from mustit_pipeline.settings.simulated_world import read_simulated_world, simulated_world_file
from mustit_pipeline.settings.whole import (
    ORDERED,
    Settings,
    SettingsError,
    load_settings,
    unknown_variables,
    with_changes,
)

__all__ = [
    "ORDERED",
    "LogSettings",
    "Settings",
    "SettingsError",
    "SigningKeys",
    "TokenKey",
    "load_settings",
    "read_simulated_world",
    "secret_values",
    "simulated_world_file",
    "unknown_variables",
    "with_changes",
]
