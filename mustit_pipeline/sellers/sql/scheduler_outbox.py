"""Schedule changes that the outside scheduler has to be told: one waits per schedule, and is claimed for a time."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, insert, text

from mustit_pipeline.domain.outbox import SchedulerOutbox
from mustit_pipeline.domain.states import SCHEDULE, SCHEDULER_OUTBOX, OutboxStatus, ScheduleEventType
from mustit_pipeline.domain.values import OutboxId, ScheduleId
from mustit_pipeline.foundation.aging import Aged
from mustit_pipeline.foundation.tables import listed
from mustit_pipeline.sellers.sql.tables import scheduler_outbox

# Only what is over: told, or replaced by a newer change.
AGED = Aged("scheduler_outbox", ("created_at", "completed_at"))

WAITING = listed(SCHEDULER_OUTBOX.sources("send"))
SENDING = listed(SCHEDULER_OUTBOX.sources("release"))


@dataclass(frozen=True, slots=True)
class ClaimedChange:
    """A change in our hands."""

    outbox: SchedulerOutbox
    seq: int
    lease_no: int


@dataclass(frozen=True, slots=True)
class ChangeCounts:
    """How many changes are on their way, and how many nobody sends any more by itself."""

    waiting: int
    failed: int


# Each change tells the whole of its schedule, so that only the newest matters.
_SUPERSEDE = text(f"""
    UPDATE scheduler_outbox older
    SET status = '{SCHEDULER_OUTBOX.target("supersede").value}', superseded_by = newest.outbox_id, completed_at = now()
    FROM scheduler_outbox newest
    WHERE older.status IN ({listed(SCHEDULER_OUTBOX.sources("supersede"))})
      AND (CAST(:schedules AS uuid[]) IS NULL OR older.schedule_id = ANY(CAST(:schedules AS uuid[])))
      AND newest.schedule_id = older.schedule_id AND newest.seq > older.seq
      AND NOT EXISTS (SELECT FROM scheduler_outbox n WHERE n.schedule_id = older.schedule_id AND n.seq > newest.seq)
""")

# One claim at a time: two could each take another change of one schedule, which its index then refuses.
_CLAIM_LOCK = text("SELECT pg_advisory_xact_lock(hashtextextended('scheduler_outbox claim', 0))")

_CLAIM = text(f"""
    UPDATE scheduler_outbox
    SET status = '{SCHEDULER_OUTBOX.target("send").value}', lease_owner = :owner, lease_no = lease_no + 1,
        lease_expires_at = now() + make_interval(secs => :lease_seconds)
    WHERE outbox_id = (
        SELECT o.outbox_id FROM scheduler_outbox o
        WHERE o.status IN ({WAITING}) AND o.next_attempt_at <= now()
          AND NOT EXISTS (SELECT FROM scheduler_outbox other WHERE other.schedule_id = o.schedule_id
                          AND (other.status IN ({SENDING}) OR other.seq > o.seq))
        ORDER BY o.next_attempt_at, o.seq LIMIT 1 FOR UPDATE SKIP LOCKED)
    RETURNING *
""")

_SETTLE = text(f"""
    UPDATE scheduler_outbox
    SET status = :status, retry_count = :retry_count, last_error = :error, lease_owner = NULL, lease_expires_at = NULL,
        next_attempt_at = now() + make_interval(secs => :delay),
        completed_at = CASE WHEN :status = '{SCHEDULER_OUTBOX.target("complete").value}' THEN now() END
    WHERE outbox_id = :id AND lease_no = :lease_no AND status IN ({SENDING})
    RETURNING outbox_id
""")

_LOCK_SCHEDULE = text("SELECT FROM crawling_schedules WHERE schedule_id = :schedule_id FOR NO KEY UPDATE")

# A newer change says how the schedule is by now, and may go through.
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
    """Store what the outside scheduler has to be told, with the change that caused it, in place of what it was not."""
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
    """End every change that waits, or has failed, behind a newer one of its schedule."""
    connection.execute(_SUPERSEDE, {"schedules": None})


def claim(connection: Connection, *, owner: str, lease_seconds: float, max_retries: int) -> ClaimedChange | None:
    """Take the change that has waited longest; nobody else has it, or another of its schedule, until the lease ends."""
    connection.execute(_CLAIM_LOCK)
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
    """Write a change back, and with its last failure the schedule's; False where the claim is another's by now."""
    row = change.outbox
    failed = row.status is SCHEDULER_OUTBOX.target("fail")
    if failed:
        # Before the row, as everybody does, and so that whoever changes the schedule right now is seen.
        connection.execute(_LOCK_SCHEDULE, {"schedule_id": row.schedule_id.value})
    values = {
        "id": row.id.value,
        "lease_no": change.lease_no,
        "status": row.status.value,
        "retry_count": row.retry_count,
        "error": row.last_error,
        "delay": delay,
    }
    ours = connection.execute(_SETTLE, values).one_or_none() is not None
    if ours and failed:
        connection.execute(_FAIL_SCHEDULE, {"schedule_id": row.schedule_id.value, "seq": change.seq})
    return ours


def release_expired(connection: Connection) -> int:
    """Let changes wait again whose sender has fallen silent; says how many."""
    return len(connection.execute(_RELEASE_EXPIRED).all())


def next_due_in(connection: Connection) -> float | None:
    """Seconds until a change can be claimed, or its silent sender's claim ends; None where none waits."""
    seconds = connection.execute(_NEXT_DUE).scalar_one()
    return None if seconds is None else max(0.0, float(seconds))


def counts(connection: Connection) -> ChangeCounts:
    """How many changes there are that EventBridge has not been told."""
    return ChangeCounts(*connection.execute(_COUNTS).one())
