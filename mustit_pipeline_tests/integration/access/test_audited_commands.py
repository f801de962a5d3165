"""Changes by commands are in the audit log like those over HTTP: under the operator's name, with before and after."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from typer.testing import CliRunner

from mustit_pipeline.cli.actor import operator
from mustit_pipeline.cli.app import app
from mustit_pipeline.domain.states import ExecutionStatus
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.settings import load_settings
from mustit_pipeline_tests.conftest import JWT_SECRET, TOKEN_KEY, dagster_beside
from mustit_pipeline_tests.integration.api.test_crawls import entries
from mustit_pipeline_tests.integration.api.test_holds import held_changes, held_deletions
from mustit_pipeline_tests.integration.rows import ground

Mustit = Callable[..., None]


@pytest.fixture
def mustit(database_url: str, tmp_path: Path) -> Mustit:
    environment = {
        "MUSTIT_HOME": str(tmp_path),
        "MUSTIT_DATABASE_URL": database_url,
        "MUSTIT_DAGSTER_DATABASE_URL": dagster_beside(database_url),
        "MUSTIT_TOKEN_KEY": TOKEN_KEY,
        "MUSTIT_JWT_SECRET": JWT_SECRET,
        "MUSTIT_REDIS_URL": "off",
    }

    def run(*arguments: str) -> None:
        load_settings.cache_clear()
        done = CliRunner().invoke(app, list(arguments), env=environment)
        assert done.exit_code == 0, done.output

    return run


def steps(database: Database, key: str) -> list[tuple[str, Any, Any]]:
    """Each entry's action, and what it changed."""
    found = entries(database)
    assert {(row["actor_kind"], row["actor"]) for row in found} == {("cli", operator())}
    return [(row["action"], (row["before"] or {}).get(key), (row["after"] or {}).get(key)) for row in found]


def test_what_an_operator_does_to_a_crawl_is_written_down(database: Database, mustit: Mustit) -> None:
    execution_id = str(ground(database, ExecutionStatus.RUNNING).home.execution_id)
    for step in ("pause", "resume", "cancel"):
        mustit("execution", step, execution_id[:8])
    assert steps(database, "status") == [
        ("execution.pause", "RUNNING", "PAUSED"),
        ("execution.resume", "PAUSED", "RUNNING"),
        ("execution.cancel", "RUNNING", "CANCELLED"),
    ]


def test_what_an_operator_does_to_sellers_is_written_down(database: Database, mustit: Mustit, tmp_path: Path) -> None:
    ground(database, ExecutionStatus.COMPLETED)
    mustit("seller", "set-interval", "dmont", "6h")
    mustit("seller", "set-interval", "dmont", "6h")
    mustit("seller", "deactivate", "dmont")
    mustit("seller", "activate", "dmont")
    (tmp_path / "sellers.csv").write_text("a,A\nb,B\n")
    mustit("seller", "load", str(tmp_path / "sellers.csv"))
    assert steps(database, "interval") == [
        ("seller.interval", "1d", "6h"),
        ("seller.deactivate", "6h", "6h"),
        ("seller.activate", "6h", "6h"),
        ("seller.load", None, None),
    ]


def test_what_an_operator_does_to_agents_is_written_down(database: Database, mustit: Mustit) -> None:
    with database.transaction() as connection:
        agent_id = str(connection.execute(text("SELECT agent_id FROM user_agents LIMIT 1")).scalar_one())
    for step in ("block", "unblock", "block"):
        mustit("agents", step, agent_id)
    mustit("agents", "unblock", "--all")
    mustit("agents", "unblock", "--all")
    mustit("agents", "resume")
    assert steps(database, "status")[:3] == [
        ("agent.block", "AVAILABLE", "BLOCKED"),
        ("agent.unblock", "BLOCKED", "AVAILABLE"),
        ("agent.block", "AVAILABLE", "BLOCKED"),
    ]
    # What changed nothing left nothing.
    assert steps(database, "blocked")[3:] == [("agents.unblock", [agent_id], [])]


@pytest.mark.parametrize(("step", "then"), [("approve", "APPROVED"), ("reject", "REJECTED")])
def test_what_an_operator_decides_of_held_deletions_is_written_down(
    database: Database, mustit: Mustit, step: str, then: str
) -> None:
    [hold] = held_deletions(database).rows("SELECT hold_id FROM deletion_holds")
    mustit("deletions", step, str(hold["hold_id"])[:8])
    assert steps(database, "status") == [(f"deletion.{step}", "OPEN", then)]


def test_what_an_operator_releases_is_written_down(database: Database, mustit: Mustit) -> None:
    mustit("holds", "release", held_changes(database).seller_id)
    assert steps(database, "status") == [("hold.release", "OPEN", "RELEASED")]
