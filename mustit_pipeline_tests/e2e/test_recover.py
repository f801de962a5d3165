"""`mustit recover`, with something and with nothing to do."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import text
from typer.testing import CliRunner

from mustit_pipeline.cli.app import app
from mustit_pipeline.domain.states import OutboxStatus, TaskStatus
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.settings import load_settings
from mustit_pipeline_tests.conftest import JWT_SECRET, TOKEN_KEY
from mustit_pipeline_tests.integration.rows import add_outbox, add_task, ground

Recover = Callable[..., str]
NOTHING = {
    "releasedTasks": 0,
    "completedExecutions": 0,
    "releasedEvents": 0,
    "recoveredAgents": 0,
    "processedSellers": 0,
    "failedRuns": 0,
}


@pytest.fixture
def recover(database_url: str, empty_database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recover:
    """The command in this process, on the test's own database; what it puts into the environment goes with the test."""
    for name, value in {
        "MUSTIT_HOME": str(tmp_path / "home"),
        "MUSTIT_DATABASE_URL": database_url,
        "MUSTIT_DAGSTER_DATABASE_URL": empty_database_url,
        "MUSTIT_TOKEN_KEY": TOKEN_KEY,
        "MUSTIT_JWT_SECRET": JWT_SECRET,
        "DAGSTER_HOME": str(tmp_path / "dagster"),
        "DAGSTER_STORAGE_URL": "set by the command",
        "DAGSTER_DISABLE_TELEMETRY": "yes",
    }.items():
        monkeypatch.setenv(name, value)
    load_settings.cache_clear()

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(app, ["recover", *arguments])
        assert done.exit_code == 0, done.output
        return done.stdout

    return run


def test_recover_says_what_it_has_set_free_and_then_that_nothing_was_stuck(
    database: Database, recover: Recover
) -> None:
    standing = ground(database)
    with database.transaction() as connection:
        add_task(connection, standing.home, TaskStatus.IN_PROGRESS, 1, expires="-1 second")
        add_outbox(connection, OutboxStatus.SENDING, 1)
    shown = recover()
    assert "tasks of silent workers" in shown
    assert "product events without a sender" in shown
    assert "agents" not in shown
    assert recover() == "nothing was stuck\n"

    with database.transaction() as connection:
        rested = "UPDATE user_agents SET status = 'SUSPENDED', suspended_until = now() - interval '1 second'"
        connection.execute(text(rested))
    assert json.loads(recover("--json")) == NOTHING | {"recoveredAgents": 50}
    assert json.loads(recover("--json")) == NOTHING
