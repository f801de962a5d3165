"""`mustit maintain`, first as a dry run, then for real, then with nothing left to do."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import text
from typer.testing import CliRunner

from mustit_pipeline.cli.app import app
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.settings import load_settings
from mustit_pipeline_tests.conftest import JWT_SECRET, TOKEN_KEY
from mustit_pipeline_tests.integration.crawls import register

Maintain = Callable[..., str]
COUNTS = {
    "tasksMoved": 0,
    "bodiesAged": 0,
    "bodiesUnchanged": 0,
    "bookings": 0,
    "alerts": 0,
    "samples": 0,
    "triggers": 0,
    "scheduleChanges": 0,
    "slices": 0,
    "logins": 0,
    "auditEntries": 0,
    "runs": 0,
    "logLines": 0,
    "tickLogs": 0,
}


@pytest.fixture
def maintain(database_url: str, empty_database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Maintain:
    """The command in this process, on the test's own two databases."""
    for variable, value in {
        "MUSTIT_HOME": str(tmp_path / "home"),
        "MUSTIT_DATABASE_URL": database_url,
        "MUSTIT_DAGSTER_DATABASE_URL": empty_database_url,
        "MUSTIT_TOKEN_KEY": TOKEN_KEY,
        "MUSTIT_JWT_SECRET": JWT_SECRET,
        "MUSTIT_RUNS_AT_ONCE": "6",
        "DAGSTER_HOME": str(tmp_path / "dagster"),
        "DAGSTER_STORAGE_URL": "set by the command",
        "DAGSTER_DISABLE_TELEMETRY": "yes",
    }.items():
        monkeypatch.setenv(variable, value)
    load_settings.cache_clear()

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(app, ["maintain", *arguments])
        assert done.exit_code == 0, done.output
        return done.stdout

    return run


def test_maintain_says_what_it_would_do_then_what_it_did_and_then_that_nothing_was_due(
    database: Database, maintain: Maintain
) -> None:
    register(database, "dmont")
    with database.transaction() as connection:
        for age in (200, 190):
            connection.execute(
                text("""
                    INSERT INTO product_raw_data (seller_id, execution_id, task_id, source, item_no, body, status,
                                                  fetched_at)
                    VALUES ('dmont', gen_random_uuid(), gen_random_uuid(), 'PRODUCT_OPTION', 1, '[]', 'PROCESSED',
                            now() - make_interval(days => :age))
                """),
                {"age": age},
            )

    dry, done = json.loads(maintain("--dry-run", "--json")), json.loads(maintain("--json"))

    assert (dry.pop("dryRun"), done.pop("dryRun")) == (True, False)
    assert dry == done
    assert len(done["monthsAdded"]) == 3
    assert (done["monthsDropped"], done["monthsLeft"]) == ([], [])
    assert {name: done[name] for name in COUNTS} == COUNTS | {"bodiesAged": 1}
    assert maintain() == "nothing was due\n"
    with database.transaction() as connection:
        connection.execute(
            text("""INSERT INTO agent_bookings (booking_id, agent_id, booked_at, expires_at)
                    SELECT gen_random_uuid(), gen_random_uuid(), long_ago, long_ago
                    FROM (SELECT now() - interval '9 days') AS past(long_ago)""")
        )
        connection.execute(
            text("""INSERT INTO alerts (subject, kind, title, detail, opened_at, last_seen_at, ended_at)
                    SELECT 'run', 'RUN_FAILED', 't', 'd', long_ago, long_ago, long_ago
                    FROM (SELECT now() - interval '99 days') AS past(long_ago)""")
        )
    assert "Would be done" in maintain("--dry-run")
    told = maintain()
    assert "bookings of agents that no window reaches" in told
    assert "alerts that were over before" in told
