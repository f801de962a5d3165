"""Messages that asked for crawls: each known by its id, and those kept that nobody could follow."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text, update
from sqlalchemy.dialects.postgresql import insert

from mustit_pipeline.domain.trigger import ParkReason
from mustit_pipeline.domain.values import ExecutionId
from mustit_pipeline.foundation.aging import Aged
from mustit_pipeline.foundation.paging import Page, page
from mustit_pipeline.scheduling.sql.tables import trigger_messages

# Beyond what SQS can deliver once more.
AGED = Aged("trigger_messages", ("received_at",))

# What is kept of a body: enough to see who sent it.
LONGEST_BODY = 2000


@dataclass(frozen=True, slots=True)
class ParkedMessage:
    """A message that nobody could follow."""

    queue: str
    message_id: str
    reason: ParkReason
    body: str
    received_at: datetime
    dismissed_at: datetime | None


_PARKED = text("""
    SELECT reason, count(*) AS number FROM trigger_messages
    WHERE reason IS NOT NULL AND dismissed_at IS NULL GROUP BY reason ORDER BY number DESC, reason
""")

_LIST = text("""
    (SELECT * FROM trigger_messages WHERE reason IS NOT NULL AND dismissed_at IS NULL
     ORDER BY received_at DESC LIMIT :limit)
    UNION ALL
    (SELECT * FROM trigger_messages WHERE :everything AND reason IS NOT NULL AND dismissed_at IS NOT NULL
     ORDER BY received_at DESC LIMIT :limit)
    LIMIT :limit
""")

_DISMISS = text("""
    UPDATE trigger_messages SET dismissed_at = :now
    WHERE reason IS NOT NULL AND dismissed_at IS NULL AND starts_with(message_id, :beginning)
    RETURNING message_id
""")


def remember(connection: Connection, queue: str, message_id: str, now: datetime) -> bool:
    """Write down that a message came; False where it had come before, whoever took it."""
    query = insert(trigger_messages).values(queue=queue, message_id=message_id, received_at=now)
    came = connection.execute(query.on_conflict_do_nothing().returning(trigger_messages.c.message_id))
    return came.one_or_none() is not None


def took(connection: Connection, queue: str, message_id: str, execution_id: ExecutionId) -> None:
    """It asked for this crawl."""
    _settle(connection, queue, message_id, {"execution_id": execution_id.value})


def park(connection: Connection, queue: str, message_id: str, reason: ParkReason, body: str) -> None:
    """Nobody can do what it asks: keep what it said for people."""
    # A text of PostgreSQL holds neither of these.
    kept = body[:LONGEST_BODY].encode(errors="replace").decode().replace("\0", "\ufffd")
    _settle(connection, queue, message_id, {"reason": reason.value, "body": kept})


def parked(connection: Connection) -> dict[ParkReason, int]:
    """How many messages wait for somebody to look at them, by reason."""
    return {ParkReason(row.reason): row.number for row in connection.execute(_PARKED)}


def newest_parked(connection: Connection, *, everything: bool, limit: int) -> Page[ParkedMessage]:
    """Parked messages, newest first, then dismissed ones where asked."""
    rows = connection.execute(_LIST, {"everything": everything, "limit": limit + 1})
    return page(
        (
            ParkedMessage(
                row.queue, row.message_id, ParkReason(row.reason), row.body, row.received_at, row.dismissed_at
            )
            for row in rows
        ),
        limit,
    )


def dismiss(connection: Connection, beginning: str, now: datetime) -> list[str]:
    """Somebody has looked at the parked messages whose id begins so; says which they were."""
    return sorted(connection.execute(_DISMISS, {"beginning": beginning, "now": now}).scalars())


def _settle(connection: Connection, queue: str, message_id: str, values: dict[str, object]) -> None:
    connection.execute(
        update(trigger_messages)
        .where(trigger_messages.c.queue == queue, trigger_messages.c.message_id == message_id)
        .values(**values)
    )
