"""Messages that asked for crawls: known by id; parked ones keep their body."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text, update
from sqlalchemy.dialects.postgresql import insert

from mustit_pipeline.domain.trigger import ParkReason
from mustit_pipeline.domain.values import ExecutionId
from mustit_pipeline.foundation.aging import Aged
from mustit_pipeline.foundation.paging import Page, page
from mustit_pipeline.scheduling.sql.tables import trigger_messages

# Kept for longer than SQS can deliver a message again.
AGED = Aged("trigger_messages", ("received_at",))

# Characters kept of a body: enough to see its sender.
LONGEST_BODY = 2000


@dataclass(frozen=True, slots=True)
class ParkedMessage:
    """A message that could not be carried out."""

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
    """Record a message; False if it was recorded before."""
    query = insert(trigger_messages).values(queue=queue, message_id=message_id, received_at=now)
    came = connection.execute(query.on_conflict_do_nothing().returning(trigger_messages.c.message_id))
    return came.one_or_none() is not None


def record_opened(connection: Connection, queue: str, message_id: str, execution_id: ExecutionId) -> None:
    """Record the execution that the message opened or joined."""
    _settle(connection, queue, message_id, {"execution_id": execution_id.value})


def park(connection: Connection, queue: str, message_id: str, reason: ParkReason, body: str) -> None:
    """Park a message that cannot be carried out, with its body for an operator."""
    # PostgreSQL stores neither lone surrogates nor NUL.
    kept = body[:LONGEST_BODY].encode(errors="replace").decode().replace("\0", "\ufffd")
    _settle(connection, queue, message_id, {"reason": reason.value, "body": kept})


def parked(connection: Connection) -> dict[ParkReason, int]:
    """The number of parked messages that are not dismissed, by reason."""
    return {ParkReason(row.reason): row.number for row in connection.execute(_PARKED)}


def newest_parked(connection: Connection, *, everything: bool, limit: int) -> Page[ParkedMessage]:
    """Parked messages, newest first, then dismissed ones on request."""
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
    """Dismiss the parked messages whose id has this prefix; returns their ids."""
    return sorted(connection.execute(_DISMISS, {"beginning": beginning, "now": now}).scalars())


def _settle(connection: Connection, queue: str, message_id: str, values: dict[str, object]) -> None:
    connection.execute(
        update(trigger_messages)
        .where(trigger_messages.c.queue == queue, trigger_messages.c.message_id == message_id)
        .values(**values)
    )
