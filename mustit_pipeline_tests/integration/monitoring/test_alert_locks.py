"""Who sees alerts and who tells of them lock them by subject, so that neither waits for the other in a circle."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text

from mustit_pipeline.foundation.database import Database
from mustit_pipeline.monitoring.alerting import CHECK_FAILED, record
from mustit_pipeline.monitoring.sql import alerts
from mustit_pipeline.monitoring.sql.alerts import Condition, Notified, Outcome
from mustit_pipeline_tests.integration.crawling.checks import number
from mustit_pipeline_tests.integration.crawling.child import wait_until

T0 = datetime(2026, 11, 16, 3, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
LOCK = text("SELECT FROM alerts WHERE subject = :subject FOR UPDATE SKIP LOCKED")


def failed(subject: str, at: datetime) -> Outcome:
    return Outcome(subject, CHECK_FAILED, at, Condition(subject, CHECK_FAILED, f"{subject} fails", "Mend it."))


def seen_and_healed(database: Database) -> Callable[[], int]:
    """The later subject fails on, the earlier one is well again."""
    outcomes = [failed("b", T0 + 2 * MINUTE), Outcome("a", CHECK_FAILED, T0 + 2 * MINUTE, None)]
    return lambda: record(database, outcomes, T0 + 2 * MINUTE).ended


def told(database: Database) -> Callable[[], int]:
    """Both were told of, the later subject, which is the older alert, first."""
    with database.transaction() as connection:
        notices = alerts.claim(connection, owner="me", limit=9, lease_seconds=60, now=T0 + 2 * MINUTE)
    assert [one.alert.subject for one in notices] == ["b", "a"]

    def settle() -> int:
        with database.transaction() as connection:
            ended = [Notified(one, {}, heard=True, again_at=None, error=None) for one in notices]
            return alerts.settle(connection, ended) - 1

    return settle


@pytest.mark.parametrize("act", [seen_and_healed, told])
def test_open_alerts_are_locked_by_subject(database: Database, act: Callable[[Database], Callable[[], int]]) -> None:
    for place, subject in enumerate("ba"):
        record(database, [failed(subject, T0 + place * MINUTE)], T0 + place * MINUTE)
    work = act(database)
    with ThreadPoolExecutor(1) as thread:
        with database.transaction() as connection:
            assert connection.execute(LOCK, {"subject": "a"}).rowcount == 1
            working = thread.submit(work)
            wait_until(lambda: working.done() or number(database, WAITING))
            # It waits for the first subject, and has not got the second one yet.
            with database.transaction() as other:
                assert other.execute(LOCK, {"subject": "b"}).rowcount == 1
        assert working.result(60) == 1
