"""Settlements: the end of a claim, and each row's next state."""

from collections.abc import Sequence

from msgspec import Struct

from mustit_pipeline.outbox.sql.outbox import ClaimedEvent
from mustit_pipeline.outbox.sql.outbox_states import COMPLETED


class Settlement(Struct, frozen=True):
    """The next state of one claimed row, and the seconds until its next try."""

    event: ClaimedEvent
    http_status: int | None
    delay: float = 0.0
    # Whether it can have reached the product server; a claim alone is no attempt.
    sent: bool = True
    # Whether the server now has this version, and not a newer one from another sender.
    held: bool = True
    # Why it failed, if that is charged to the server or our credential; the row's own failure is in the row.
    doubt: str | None = None


# Means SENDING, by a constraint of the table; the planner then looks these rows up instead of scanning all SENDING
# rows.
IN_OUR_HANDS = "num_nulls(o.lease_owner) <> 1"

# A part of a statement that also moves the product's delivered version (`delivery/sql/settling.py`).
SETTLED = f"""settled AS (
        UPDATE product_outbox o
        SET status = s.status, retry_count = s.retry_count, last_status = s.http_status, last_error = s.error,
            event_type = s.event_type, lease_owner = NULL, lease_expires_at = NULL,
            -- A replay by hand starts the count again, and with it the time.
            failing_since = CASE WHEN s.retry_count = 0 THEN NULL WHEN o.retry_count = 0 THEN now()
                                 ELSE coalesce(o.failing_since, now()) END,
            doubted_since = CASE WHEN s.doubted THEN coalesce(o.doubted_since, now()) ELSE o.doubted_since END,
            attempts = o.attempts - CASE WHEN s.sent THEN 0 ELSE 1 END,
            -- Given back without a pause it is as old as it was, and stands where it stood.
            next_attempt_at = CASE WHEN s.delay > 0 THEN now() + make_interval(secs => s.delay)
                                   ELSE o.next_attempt_at END,
            completed_at = CASE WHEN s.status = {COMPLETED} THEN now() END
        FROM unnest(CAST(:ids AS uuid[]), CAST(:lease_nos AS int[]), CAST(:statuses AS text[]),
                    CAST(:retry_counts AS smallint[]), CAST(:http_statuses AS smallint[]), CAST(:errors AS text[]),
                    CAST(:types AS text[]), CAST(:delays AS float8[]), CAST(:sent AS boolean[]),
                    CAST(:doubted AS boolean[]), CAST(:held AS boolean[]))
             AS s(id, lease_no, status, retry_count, http_status, error, event_type, delay, sent, doubted, held)
        WHERE o.outbox_id = s.id AND o.lease_no = s.lease_no AND {IN_OUR_HANDS}
        RETURNING o.outbox_id, o.seller_id, o.item_no, o.version, o.status, s.held
    )"""


def values_of(settlements: Sequence[Settlement]) -> dict[str, object]:
    """The parameters of the statement."""
    rows = [s.event.outbox for s in settlements]
    return {
        "ids": [row.id.value for row in rows],
        "lease_nos": [s.event.lease_no for s in settlements],
        "statuses": [row.status.value for row in rows],
        "retry_counts": [row.retry_count for row in rows],
        "http_statuses": [s.http_status for s in settlements],
        "errors": [s.doubt or row.last_error for s, row in zip(settlements, rows, strict=True)],
        "types": [row.event_type.value for row in rows],
        "delays": [s.delay for s in settlements],
        "sent": [s.sent for s in settlements],
        "doubted": [s.doubt is not None for s in settlements],
        "held": [s.sent and s.held for s in settlements],
    }
