"""How many connections a process keeps and opens at most, and how long PostgreSQL believes in a silent one."""

from contextlib import ExitStack

import pytest
from sqlalchemy import text
from sqlalchemy.exc import TimeoutError as NoConnection
from sqlalchemy.pool import QueuePool

from mustit_pipeline.store.database import Database, open_database
from mustit_pipeline_tests.conftest import MakeSettings


def test_a_process_opens_as_many_connections_as_the_settings_allow(
    make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = open_database(make_settings(database_connections=1, database_max_connections=2))
    pool = database.engine.pool
    assert isinstance(pool, QueuePool)
    monkeypatch.setattr(pool, "_timeout", 0.05)
    try:
        with ExitStack() as held:
            for _ in range(2):
                held.enter_context(database.transaction())
            with pytest.raises(NoConnection):
                held.enter_context(database.transaction())
        assert pool.checkedin() == 1
    finally:
        database.close()


def test_postgresql_notices_within_two_minutes_that_a_host_has_vanished(database: Database) -> None:
    """Its locks would otherwise stay for two hours, and a lost run would keep its seller for as long."""
    # In force only over TCP: through a socket SHOW says 0, while what was asked for is still what a RESET goes back to.
    query = text("SELECT name, reset_val::int FROM pg_settings WHERE name LIKE 'tcp%' AND source = 'client'")
    with database.reading() as connection:
        asked = {row.name: row.reset_val for row in connection.execute(query)}

    silent = asked["tcp_keepalives_idle"] + asked["tcp_keepalives_interval"] * asked["tcp_keepalives_count"]
    assert 0 < silent < 120
    assert 0 < asked["tcp_user_timeout"] < 120_000
