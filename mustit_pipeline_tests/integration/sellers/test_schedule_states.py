"""State changes of schedules and of what EventBridge is told of them in SQL, against the domain's own tables."""

from uuid import UUID

import pytest
from sqlalchemy import text

from mustit_pipeline.domain.outbox import SchedulerOutbox
from mustit_pipeline.domain.states import SCHEDULE, SCHEDULER_OUTBOX, OutboxStatus, ScheduleEventType, ScheduleStatus
from mustit_pipeline.domain.values import CrawlingInterval, OutboxId, ScheduleId, SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.sellers import registry
from mustit_pipeline.sellers.sql import scheduler_outbox
from mustit_pipeline.sellers.sql.scheduler_outbox import ClaimedChange
from mustit_pipeline_tests.integration.test_states import moved

NOW = utc_now()


def add_changes(database: Database) -> dict[UUID, OutboxStatus]:
    """A schedule change in each state, each of a schedule of its own."""
    before: dict[UUID, OutboxStatus] = {}
    for status in OutboxStatus:
        registry.register(database, SellerId(status.value), "n", CrawlingInterval.DEFAULT, NOW)
        with database.transaction() as connection:
            outbox_id = connection.execute(
                text("""
                    UPDATE scheduler_outbox SET status = :status, lease_no = 1,
                        lease_owner = CASE WHEN :status = 'SENDING' THEN 'another worker' END,
                        lease_expires_at = CASE WHEN :status = 'SENDING' THEN now() - interval '1 minute' END
                    WHERE seq = (SELECT max(seq) FROM scheduler_outbox) RETURNING outbox_id
                """),
                {"status": status.value},
            ).scalar_one()
        before[outbox_id] = status
    return before


def changes(database: Database) -> dict[UUID, str]:
    with database.reading() as connection:
        return {row[0]: row[1] for row in connection.execute(text("SELECT outbox_id, status FROM scheduler_outbox"))}


def test_a_schedule_change_makes_exactly_the_moves_that_the_domain_allows(database: Database) -> None:
    before = add_changes(database)
    with database.transaction() as connection:
        while scheduler_outbox.claim(connection, owner="me", lease_seconds=30, max_retries=5) is not None:
            pass
    assert changes(database) == moved(SCHEDULER_OUTBOX, before, "send")


def test_ownerless_schedule_changes_wait_again(database: Database) -> None:
    before = add_changes(database)
    with database.transaction() as connection:
        scheduler_outbox.release_expired(connection)
    assert changes(database) == moved(SCHEDULER_OUTBOX, before, "release")


def test_a_newer_schedule_change_supersedes_exactly_those_that_are_not_being_sent(database: Database) -> None:
    before = add_changes(database)
    registry.resend(database, NOW)
    after = changes(database)
    assert {key: after[key] for key in before} == moved(SCHEDULER_OUTBOX, before, "supersede")


@pytest.mark.parametrize("move", ["complete", "fail"])
def test_a_settled_schedule_change_moves_only_while_it_is_being_sent(database: Database, move: str) -> None:
    before = add_changes(database)
    for outbox_id in before:
        with database.transaction() as connection:
            query = text("SELECT schedule_id, seq FROM scheduler_outbox WHERE outbox_id = :id")
            row = connection.execute(query, {"id": outbox_id}).one()
            change = SchedulerOutbox(
                id=OutboxId(outbox_id),
                created_at=NOW,
                status=OutboxStatus.SENDING,
                schedule_id=ScheduleId(row.schedule_id),
                event_type=ScheduleEventType.SCHEDULE_REGISTERED,
                payload="{}",
            )
            if move == "complete":
                change.complete(NOW)
            else:
                change.fail("refused", permanent=True)
            scheduler_outbox.settle(connection, ClaimedChange(change, row.seq, 1), 0)
    assert changes(database) == moved(SCHEDULER_OUTBOX, before, move)
    with database.reading() as connection:
        query = text("SELECT seller_id FROM crawling_schedules WHERE status = 'FAILED'")
        failed = set(connection.execute(query).scalars())
    assert failed == ({"SENDING"} if move == "fail" else set())


def test_a_schedule_fails_from_exactly_the_states_that_the_domain_allows(database: Database) -> None:
    registry.register(database, SellerId("dmont"), "n", CrawlingInterval.DEFAULT, NOW)
    for status in ScheduleStatus:
        with database.transaction() as connection:
            connection.execute(text("UPDATE crawling_schedules SET status = :status"), {"status": status.value})
            connection.execute(text("UPDATE scheduler_outbox SET status = 'WAITING'"))
            change = scheduler_outbox.claim(connection, owner="me", lease_seconds=30, max_retries=1)
            assert change is not None
            change.outbox.fail("refused")
            scheduler_outbox.settle(connection, change, 0)
        with database.reading() as connection:
            stored = connection.execute(text("SELECT status FROM crawling_schedules")).scalar_one()
        assert stored == (SCHEDULE.target("fail") if status in SCHEDULE.sources("fail") else status)
