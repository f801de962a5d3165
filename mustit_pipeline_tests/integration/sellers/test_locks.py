"""Schedule changes of many sellers are superseded in the order of their numbers, whatever the statement's plan."""

from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import text

from mustit_pipeline.foundation.database import Database
from mustit_pipeline.sellers.sql import scheduler_outbox
from mustit_pipeline_tests.integration.crawling.checks import number
from mustit_pipeline_tests.integration.crawling.child import wait_until
from mustit_pipeline_tests.integration.crawls import register

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
NEWER = """
    INSERT INTO scheduler_outbox (outbox_id, schedule_id, event_type, payload, status, created_at)
    SELECT gen_random_uuid(), schedule_id, event_type, payload, 'COMPLETED', now() FROM scheduler_outbox
"""
LAST = """
    UPDATE scheduler_outbox SET seq = DEFAULT
    WHERE schedule_id = (SELECT schedule_id FROM scheduler_outbox ORDER BY schedule_id LIMIT 1)
"""
LOCK = text("SELECT FROM scheduler_outbox WHERE seq = :seq FOR UPDATE SKIP LOCKED")


def test_changes_that_a_newer_one_replaces_are_locked_by_their_number(database: Database) -> None:
    register(database, "a", "b")
    with database.transaction() as connection:
        # By their schedules they stand the other way round.
        connection.execute(text(LAST))
        connection.execute(text(NEWER))
        waiting = "SELECT seq FROM scheduler_outbox WHERE status = 'WAITING' ORDER BY seq"
        first, second = connection.execute(text(waiting)).scalars()

    def supersede() -> None:
        with database.transaction() as connection:
            scheduler_outbox.supersede(connection)

    with ThreadPoolExecutor(1) as thread:
        with database.transaction() as connection:
            assert connection.execute(LOCK, {"seq": first}).rowcount == 1
            superseding = thread.submit(supersede)
            wait_until(lambda: superseding.done() or number(database, WAITING))
            with database.transaction() as other:
                assert other.execute(LOCK, {"seq": second}).rowcount == 1
        superseding.result(60)
    assert number(database, "SELECT count(*) FROM scheduler_outbox WHERE superseded_by IS NOT NULL") == 2
