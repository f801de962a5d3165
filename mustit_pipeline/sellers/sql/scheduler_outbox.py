"""Schedule changes to be sent to EventBridge: one waits per schedule, and is claimed for a time."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, insert, text

from mustit_pipeline.domain.outbox import SchedulerOutbox
from mustit_pipeline.domain.states import SCHEDULE, SCHEDULER_OUTBOX, OutboxStatus, ScheduleEventType
from mustit_pipeline.domain.values import OutboxId, ScheduleId
from mustit_pipeline.foundation import advisory_locks
from mustit_pipeline.foundation.advisory_locks import Only
from mustit_pipeline.foundation.aging import Aged
from mustit_pipeline.foundation.tables import listed
from mustit_pipeline.sellers.sql.tables import scheduler_outbox

# Only ended rows: sent, or replaced by a newer change.
AGED = Aged("scheduler_outbox", ("created_at", "completed_at"))

WAITING = listed(SCHEDULER_OUTBOX.sources("send"))
SENDING = listed(SCHEDULER_OUTBOX.sources("release"))


@dataclass(frozen=True, slots=True)
class ClaimedChange:
    """A change that this relay has claimed."""

    outbox: SchedulerOutbox
    seq: int
    lease_no: int


@dataclass(frozen=True, slots=True)
class ChangeCounts:
    """The number of changes still to be sent, and of FAILED ones, which are not retried."""

    waiting: int
    failed: int


# Each change holds the whole schedule, so only the newest matters.
_SUPERSEDE = text(f"""
    WITH replaced AS (
        SELECT older.outbox_id, newest.outbox_id AS newer
        FROM scheduler_outbox older CROSS JOIN LATERAL (
            SELECT n.outbox_id FROM scheduler_outbox n
            WHERE n.schedule_id = older.schedule_id AND n.seq > older.seq ORDER BY n.seq DESC LIMIT 1) AS newest
        WHERE older.status IN ({listed(SCHEDULER_OUTBOX.sources("supersede"))})
          AND (CAST(:schedules AS uuid[]) IS NULL OR older.schedule_id = ANY(CAST(:schedules AS uuid[])))
        ORDER BY older.seq FOR NO KEY UPDATE OF older
    )
    UPDATE scheduler_outbox o
    SET status = '{SCHEDULER_OUTBOX.target("supersede").value}', superseded_by = r.newer, completed_at = now()
    FROM replaced r WHERE o.outbox_id = r.outbox_id
""")

_CLAIM = text(f"""
    UPDATE scheduler_outbox
    SET status = '{SCHEDULER_OUTBOX.target("send").value}', lease_owner = :owner, lease_no = lease_no + 1,
        lease_expires_at = now() + make_interval(secs => :lease_seconds)
    WHERE outbox_id = (
        SELECT o.outbox_id FROM scheduler_outbox o
        WHERE o.status IN ({WAITING}) AND o.next_attempt_at <= now()
          AND (SELECT s.seq FROM scheduler_outbox s
               WHERE s.schedule_id = o.schedule_id AND s.status IN ({SENDING}) LIMIT 1) IS NULL
          AND (SELECT n.seq FROM scheduler_outbox n
               WHERE n.schedule_id = o.schedule_id AND n.seq > o.seq LIMIT 1) IS NULL
        ORDER BY o.next_attempt_at, o.seq LIMIT 1 FOR UPDATE SKIP LOCKED)
    RETURNING *
""")

_SETTLE = text(f"""
    UPDATE scheduler_outbox
    SET status = :status, payload = :payload, retry_count = :retry_count, last_error = :error, lease_owner = NULL,
        lease_expires_at = NULL, next_attempt_at = now() + make_interval(secs => :delay),
        completed_at = CASE WHEN :status = '{SCHEDULER_OUTBOX.target("complete").value}' THEN now() END
    WHERE outbox_id = :id AND lease_no = :lease_no AND status IN ({SENDING})
    RETURNING outbox_id
""")

_LOCK_SCHEDULE = text("SELECT FROM crawling_schedules WHERE schedule_id = :schedule_id FOR NO KEY UPDATE")

# A newer change holds the present schedule and may succeed.
_FAIL_SCHEDULE = text(f"""
    UPDATE crawling_schedules c SET status = '{SCHEDULE.target("fail").value}', updated_at = now()
    WHERE c.schedule_id = :schedule_id AND c.status IN ({listed(SCHEDULE.sources("fail"))})
      AND NOT EXISTS (SELECT FROM scheduler_outbox o WHERE o.schedule_id = c.schedule_id AND o.seq > :seq)
""")

_RELEASE_EXPIRED = text(f"""
    UPDATE scheduler_outbox
    SET status = '{SCHEDULER_OUTBOX.target("release").value}', lease_owner = NULL, lease_expires_at = NULL
    WHERE outbox_id IN (SELECT outbox_id FROM scheduler_outbox
                        WHERE status IN ({SENDING}) AND lease_expires_at < now() FOR UPDATE SKIP LOCKED)
    RETURNING 1
""")

_NEXT_DUE = text(f"""
    SELECT extract(epoch FROM least(min(next_attempt_at) FILTER (WHERE status IN ({WAITING})),
                                    min(lease_expires_at) FILTER (WHERE status IN ({SENDING}))) - now())
    FROM scheduler_outbox WHERE status IN ({WAITING}, {SENDING})
""")

_COUNTS = text(f"""
    SELECT (SELECT count(*) FROM scheduler_outbox WHERE status IN ({WAITING}, {SENDING})) AS waiting,
           (SELECT count(*) FROM scheduler_outbox
            WHERE status = '{SCHEDULER_OUTBOX.target("fail").value}') AS failed
""")


def enqueue(connection: Connection, changes: Sequence[SchedulerOutbox]) -> None:
    """Store changes to be sent, in the transaction that made them; they supersede unsent ones of their schedules."""
    if not changes:
        return
    connection.execute(
        insert(scheduler_outbox),
        [
            {
                "outbox_id": change.id.value,
                "schedule_id": change.schedule_id.value,
                "event_type": change.event_type.value,
                "payload": change.payload,
                "status": change.status.value,
                "created_at": change.created_at,
            }
            for change in changes
        ],
    )
    connection.execute(_SUPERSEDE, {"schedules": [change.schedule_id.value for change in changes]})


def supersede(connection: Connection) -> None:
    """End every waiting or failed change that has a newer one of its schedule."""
    connection.execute(_SUPERSEDE, {"schedules": None})


def claim(connection: Connection, *, owner: str, lease_seconds: float, max_retries: int) -> ClaimedChange | None:
    """Take the change that has waited longest; until its lease ends, no other relay takes one of its schedule."""
    # One claim at a time: two could each take another change of one schedule, which its index then refuses.
    advisory_locks.lock(connection, Only.SCHEDULER_OUTBOX_CLAIM)
    row = connection.execute(_CLAIM, {"owner": owner, "lease_seconds": lease_seconds}).one_or_none()
    if row is None:
        return None
    outbox = SchedulerOutbox(
        id=OutboxId(row.outbox_id),
        created_at=row.created_at,
        status=OutboxStatus(row.status),
        retry_count=row.retry_count,
        max_retries=max_retries,
        last_error=row.last_error,
        schedule_id=ScheduleId(row.schedule_id),
        event_type=ScheduleEventType(row.event_type),
        payload=row.payload,
    )
    return ClaimedChange(outbox, row.seq, row.lease_no)


def settle(connection: Connection, change: ClaimedChange, delay: float) -> bool:
    """Write a change back, and fail the schedule with its last failure; False if the claim is lost."""
    row = change.outbox
    failed = row.status is SCHEDULER_OUTBOX.target("fail")
    if failed:
        # Before the outbox row, the common lock order, and so that a concurrent change of the schedule is seen.
        connection.execute(_LOCK_SCHEDULE, {"schedule_id": row.schedule_id.value})
    values = {
        "id": row.id.value,
        "lease_no": change.lease_no,
        "status": row.status.value,
        "payload": row.payload,
        "retry_count": row.retry_count,
        "error": row.last_error,
        "delay": delay,
    }
    ours = connection.execute(_SETTLE, values).one_or_none() is not None
    if ours and failed:
        connection.execute(_FAIL_SCHEDULE, {"schedule_id": row.schedule_id.value, "seq": change.seq})
    return ours


def release_expired(connection: Connection) -> int:
    """Release changes whose claim has expired; returns their number."""
    return len(connection.execute(_RELEASE_EXPIRED).all())


def next_due_in(connection: Connection) -> float | None:
    """Seconds until a change can be claimed, or its claim expires; None if none waits."""
    seconds = connection.execute(_NEXT_DUE).scalar_one()
    return None if seconds is None else max(0.0, float(seconds))


def counts(connection: Connection) -> ChangeCounts:
    """The numbers of changes that EventBridge has not accepted."""
    return ChangeCounts(*connection.execute(_COUNTS).one())
