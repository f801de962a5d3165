"""Commands asked in this process, with the settings of a test."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import SecretStr
from typer.testing import CliRunner

from mustit_pipeline.cli.app import app
from mustit_pipeline.settings import Settings, load_settings

Ask = Callable[..., Any]


def asking(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Runs a command, and says the JSON document that it prints; an error that it would explain is raised."""
    for name, value in settings.model_dump(exclude_none=True).items():
        text = value.get_secret_value() if isinstance(value, SecretStr) else str(value)
        monkeypatch.setenv(f"MUSTIT_{name.upper()}", text)

    def run(*arguments: str, code: int = 0) -> Any:
        load_settings.cache_clear()
        result = CliRunner().invoke(app, [*arguments, "--json"])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code
        return json.loads(result.stdout)

    return run
