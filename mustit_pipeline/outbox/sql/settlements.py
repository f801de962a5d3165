"""Settlements: the end of a claim, and each row's next state."""

from collections.abc import Sequence

from msgspec import Struct

from mustit_pipeline.domain.outbox import ProductOutbox
from mustit_pipeline.domain.states import PRODUCT_OUTBOX, OutboxStatus
from mustit_pipeline.outbox.sql.outbox import ClaimedEvent
from mustit_pipeline.outbox.sql.outbox_states import COMPLETED

_ARRIVED = PRODUCT_OUTBOX.target("complete")


class Settlement(Struct, frozen=True):
    """The next state of one claimed row, and the seconds until its next try."""

    event: ClaimedEvent
    http_status: int | None
    # What the domain's rules have made of the row; without it, it has arrived as what it is.
    row: ProductOutbox | None = None
    delay: float = 0.0
    # Whether it can have reached the product server; a claim alone is no attempt.
    sent: bool = True
    # Whether the server now has this version, and not a newer one from another sender.
    held: bool = True
    # Why it failed, if that is charged to the server or our credential; the row's own failure is in the row.
    doubt: str | None = None

    @property
    def has_arrived(self) -> bool:
        """Whether it was sent and taken, and nothing else is to be said of it."""
        return self.row is None and self.sent

    @property
    def status(self) -> OutboxStatus:
        """The row's next state."""
        return _ARRIVED if self.row is None else self.row.status


# Means SENDING, by a constraint of the table; the planner then looks these rows up instead of scanning all SENDING
# rows.
IN_OUR_HANDS = "num_nulls(o.lease_owner) <> 1"

# A part of a statement that also moves the product's delivered version (`delivery/sql/settling.py`). Rows that have
# simply arrived are most of them, and bring three values instead of eleven.
SETTLED = f"""settled AS (
        UPDATE product_outbox o
        SET status = s.status, retry_count = coalesce(s.retry_count, o.retry_count), last_status = s.http_status,
            last_error = s.error, event_type = coalesce(s.event_type, o.event_type), lease_owner = NULL,
            lease_expires_at = NULL,
            -- A replay by hand starts the count again, and with it the time.
            failing_since = CASE WHEN coalesce(s.retry_count, o.retry_count) = 0 THEN NULL
                                 WHEN o.retry_count = 0 THEN now() ELSE coalesce(o.failing_since, now()) END,
            doubted_since = CASE WHEN s.doubted THEN coalesce(o.doubted_since, now()) ELSE o.doubted_since END,
            attempts = o.attempts - CASE WHEN s.sent THEN 0 ELSE 1 END,
            -- Given back without a pause it is as old as it was, and stands where it stood.
            next_attempt_at = CASE WHEN s.delay > 0 THEN now() + make_interval(secs => s.delay)
                                   ELSE o.next_attempt_at END,
            completed_at = CASE WHEN s.status = {COMPLETED} THEN now() END
        FROM (SELECT id, lease_no, {COMPLETED} AS status, CAST(NULL AS smallint) AS retry_count, http_status,
                     CAST(NULL AS text) AS error, CAST(NULL AS text) AS event_type, CAST(0 AS float8) AS delay,
                     true AS sent, false AS doubted, true AS held
              FROM unnest(CAST(:arrived AS uuid[]), CAST(:arrived_lease_nos AS int[]),
                          CAST(:arrived_statuses AS smallint[])) AS a(id, lease_no, http_status)
              UNION ALL
              SELECT * FROM unnest(CAST(:ids AS uuid[]), CAST(:lease_nos AS int[]), CAST(:statuses AS text[]),
                                   CAST(:retry_counts AS smallint[]), CAST(:http_statuses AS smallint[]),
                                   CAST(:errors AS text[]), CAST(:types AS text[]), CAST(:delays AS float8[]),
                                   CAST(:sent AS boolean[]), CAST(:doubted AS boolean[]), CAST(:held AS boolean[]))
             ) AS s(id, lease_no, status, retry_count, http_status, error, event_type, delay, sent, doubted, held)
        WHERE o.outbox_id = s.id AND o.lease_no = s.lease_no AND {IN_OUR_HANDS}
        RETURNING o.outbox_id, o.seller_id, o.item_no, o.version, o.event_type, o.created_at, o.status, s.held
    )"""


def values_of(settlements: Sequence[Settlement]) -> dict[str, object]:
    """The parameters of the statement."""
    arrived = [s for s in settlements if s.has_arrived]
    others = [s for s in settlements if not s.has_arrived]
    rows = [s.row for s in others]
    return {
        "arrived": [s.event.row_id for s in arrived],
        "arrived_lease_nos": [s.event.lease_no for s in arrived],
        "arrived_statuses": [s.http_status for s in arrived],
        "ids": [s.event.row_id for s in others],
        "lease_nos": [s.event.lease_no for s in others],
        "statuses": [s.status.value for s in others],
        "retry_counts": [None if row is None else row.retry_count for row in rows],
        "http_statuses": [s.http_status for s in others],
        "errors": [s.doubt or (None if row is None else row.last_error) for s, row in zip(others, rows, strict=True)],
        "types": [None if row is None else row.event_type.value for row in rows],
        "delays": [s.delay for s in others],
        "sent": [s.sent for s in others],
        "doubted": [s.doubt is not None for s in others],
        "held": [s.sent and s.held for s in others],
    }
