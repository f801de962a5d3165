"""The plans of checks and alerts on tables that have grown: nobody reads a big one from end to end."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from sqlalchemy import Connection, text

from mustit_pipeline.clock import utc_now
from mustit_pipeline.store import alerts, change_holds, criteria, health, retention, triggers, truth
from mustit_pipeline.store.alerts import Condition, Outcome
from mustit_pipeline.store.database import Database
from mustit_pipeline.store.truth import Drawn
from mustit_pipeline_tests.integration.store.test_query_plans import plans
from mustit_pipeline_tests.integration.store.test_upkeep_plans import SELLER, grown, scanned

__all__ = ["grown"]

pytestmark = pytest.mark.untouched_database
DAY = timedelta(days=1)
_ALERTS = """
    INSERT INTO alerts (subject, kind, title, detail, opened_at, last_seen_at, ended_at, notice_at)
    SELECT 'run ' || n % 500, 'RUN_FAILED', 't', 'd', now(), now(), CASE WHEN n > 10 THEN now() END,
           CASE WHEN n % 1000 = 0 THEN now() END
    FROM generate_series(1, 20000) n
"""
_SAMPLES = """
    INSERT INTO truth_samples (seller_id, item_no, verdict, sampled_at, judged_at, said_hash)
    SELECT 'seller 7', n, CASE WHEN n % 1000 = 0 THEN 'OPEN' ELSE 'EQUAL' END, now() - n * interval '1 hour',
           CASE WHEN n % 1000 <> 0 THEN now() - n * interval '1 hour' END, 'x'
    FROM generate_series(1, 20000) n
"""
_MESSAGES = """
    INSERT INTO trigger_messages (queue, message_id, reason, body, received_at, dismissed_at)
    SELECT 'https://sqs.example.com/queue', n, CASE WHEN n % 1000 = 0 THEN 'NOT_JSON' END,
           CASE WHEN n % 1000 = 0 THEN 'x' END, now() - n * interval '1 minute', CASE WHEN n % 2000 = 0 THEN now() END
    FROM generate_series(1, 20000) n
"""


def test_neither_checks_nor_alerts_read_a_big_table_from_end_to_end(grown: Database) -> None:
    with grown.transaction() as connection:
        for statement in (_ALERTS, _SAMPLES, _MESSAGES):
            connection.execute(text(statement))
    with grown.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("VACUUM ANALYZE")
    now = utc_now()
    failed = Condition("run 7", "RUN_FAILED", "t", "d")
    queries: dict[str, Callable[[Connection], object]] = {
        "sweeps": lambda c: health.sweeps(c, now - 31 * DAY),
        "incomplete sweeps": lambda c: health.incomplete_sweeps(c, now - 7 * DAY),
        "failed events": health.failed_events,
        "unsent events": health.unsent_events,
        "failing": lambda c: health.failing(c, now - 31 * DAY, 95, 20),
        "overdue": lambda c: health.overdue(c, now, 2, 20),
        "outcomes": lambda c: criteria.outcomes(c, now - DAY),
        "completeness": lambda c: criteria.completeness(c, now - DAY, 20),
        "deliveries": lambda c: criteria.deliveries(c, now - DAY, now, 24),
        "throughput": lambda c: criteria.throughput(c, now - DAY),
        "jumps": lambda c: criteria.jumps(c, now - DAY, 3),
        "gaps": lambda c: criteria.gaps(c, now - DAY),
        "verdicts": lambda c: criteria.verdicts(c, now - 7 * DAY),
        "draw": lambda c: truth.draw(c, 10),
        "suspects": lambda c: truth.suspects(c, 10),
        "known": lambda c: truth.known(c, [Drawn(SELLER, 7001)]),
        "wrong": lambda c: truth.wrong(c, now - 7 * DAY, 20),
        "suspicious": lambda c: change_holds.suspicious(c, SELLER, 3),
        "looked at": lambda c: change_holds.among_all(c, SELLER, change_holds.suspicious(c, SELLER, 3)),
        "see": lambda c: alerts.see(c, [(failed, now)], now),
        "end healed": lambda c: alerts.end_healed(c, [Outcome("run 7", "RUN_FAILED", now, None)], now),
        "end unseen": lambda c: alerts.end_unseen(c, ["RUN_FAILED"], ["run 7"], now, now),
        "claim": lambda c: alerts.claim(c, owner="me", limit=10, lease_seconds=60, now=now),
        "alerts of nobody": lambda c: health.alerts_of_nobody(c, "RUN_FAILED", "run of seller "),
        "open alerts": alerts.open_alerts,
        "old alerts": lambda c: retention.count_aged(c, retention.ALERTS, now - 90 * DAY),
        "old samples": lambda c: retention.count_aged(c, retention.SAMPLES, now - 800 * DAY),
        "parked messages": triggers.parked,
        "newest parked": lambda c: triggers.newest_parked(c, everything=False, limit=20),
        "a known message": lambda c: triggers.remember(c, "https://sqs.example.com/queue", "7", now),
        "old messages": lambda c: retention.count_aged(c, retention.TRIGGERS, now - 13 * DAY),
        "newest": lambda c: alerts.newest(c, everything=True, limit=20),
    }
    found: dict[str, list[str]] = {}
    for name, act in queries.items():
        explained = plans(grown, act)
        assert explained, name
        found[name] = [
            table for plan in explained for table in scanned(plan, ("alerts", "truth_samples", "trigger_messages"))
        ]
    assert found == {name: [] for name in queries}
