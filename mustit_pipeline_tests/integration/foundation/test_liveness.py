"""The lock that says that a run is alive, while PostgreSQL comes and goes."""

import time

from sqlalchemy import text

from mustit_pipeline.foundation.database import Database
from mustit_pipeline.foundation.liveness import find_dead, hold_liveness

PATIENCE_SECONDS = 30.0


def break_holders(database: Database) -> int:
    """End every connection that holds such a lock, as a restart of PostgreSQL does, and wait until they are gone."""
    query = text("""
        SELECT count(*) FILTER (WHERE pg_terminate_backend(pid, 10000)) FROM pg_locks
        WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    """)
    with database.transaction() as connection:
        return connection.execute(query).scalar_one()


def wait_until_present(database: Database, run_id: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while find_dead(database, [run_id]):
        assert time.monotonic() < deadline, "the lock was never taken again"
        time.sleep(0.05)


def test_a_run_is_absent_until_it_is_present_and_after_that(database: Database) -> None:
    assert find_dead(database, ["a", "b"]) == {"a", "b"}
    with hold_liveness(database, "a"):
        assert find_dead(database, ["a", "b"]) == {"b"}
    assert find_dead(database, ["a", "b"]) == {"a", "b"}


def test_a_run_that_outlives_its_connection_is_present_again(database: Database) -> None:
    with hold_liveness(database, "a"):
        for _ in range(2):
            assert break_holders(database) == 1
            wait_until_present(database, "a")
    assert find_dead(database, ["a"]) == {"a"}


def test_a_run_ends_well_although_its_lock_was_lost(database: Database) -> None:
    with hold_liveness(database, "a"):
        assert break_holders(database) == 1
    assert find_dead(database, ["a"]) == {"a"}
