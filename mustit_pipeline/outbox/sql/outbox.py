"""The product outbox: a row is written with its version, claimed for a time by the relay that sends it, and settled."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from msgspec import Struct
from sqlalchemy import Connection, text

from mustit_pipeline.domain.outbox import ProductOutbox
from mustit_pipeline.domain.states import PRODUCT_OUTBOX, OutboxStatus, ProductEventType
from mustit_pipeline.domain.values import ItemNo, OutboxId, SellerId
from mustit_pipeline.foundation import advisory_locks
from mustit_pipeline.foundation.advisory_locks import Only
from mustit_pipeline.foundation.random_ids import time_ordered_uuids
from mustit_pipeline.foundation.tables import BY_TIME
from mustit_pipeline.outbox.sql.outbox_states import (
    COMPLETED,
    IN_LOCK_ORDER,
    RELEASED,
    REPLACEABLE,
    SENDING,
    SENT,
    SUPERSEDED,
    UNSENT,
    WAITING,
)

TRIAL_CANDIDATES = 100
_ARRIVED = PRODUCT_OUTBOX.target("complete")


class ClaimedEvent(Struct, frozen=True):
    """A claimed row, with the state to send and the state that the product server is known to have."""

    row_id: UUID
    lease_no: int
    seller_id: str
    item_no: int
    version: int
    # As it was written; `delivery/product_server.py` says what it goes out as.
    event_type: str
    event_id: str
    idempotency_key: str
    # As the event says it.
    occurred_at: str
    created_at: datetime
    retry_count: int
    last_error: str | None
    life_cycle: str
    product_data: str | None
    changes: str
    delivered_version: int
    delivered_data: str | None
    # Whether an older version may have arrived: a relay has tried to send it.
    tried_before: bool
    # Whether a deletion newer than the delivered version may have arrived: then nothing is left to update.
    may_be_deleted: bool
    due_at: datetime
    failing_since: datetime | None
    # Since when its failures are charged to the server or to our credential.
    doubted_since: datetime | None
    # How often this version has been sent, this time included; and whether an earlier try may have arrived.
    attempts: int
    sent_before: bool

    @property
    def troubled_since(self) -> datetime | None:
        """Since when it fails, whether the row or the server is charged; None where it does not."""
        # A replay by hand starts the count again, and with it the time.
        failing_since = self.failing_since if self.retry_count else None
        return min((moment for moment in (failing_since, self.doubted_since) if moment is not None), default=None)

    def outbox(self, max_retries: int) -> ProductOutbox:
        """The row, which decides about its own failures. One that is simply delivered needs none of its rules."""
        return ProductOutbox(
            id=OutboxId(self.row_id),
            created_at=self.created_at,
            status=PRODUCT_OUTBOX.target("send"),
            retry_count=self.retry_count,
            max_retries=max_retries,
            last_error=self.last_error,
            seller_id=SellerId(self.seller_id),
            item_no=ItemNo(self.item_no),
            version=self.version,
            event_type=ProductEventType(self.event_type),
        )


class First(StrEnum):
    """Which of the due rows are claimed first."""

    OLDEST = "next_attempt_at"
    NEWEST = "next_attempt_at DESC"
    # A row that breaks every connection must not keep the breaker open for all others.
    LEAST_TRIED = "attempts, next_attempt_at"


@dataclass(frozen=True, slots=True)
class Wanted:
    """How many due rows a claim may take: rows that never failed, and rows that failed."""

    fresh: int
    failing: int
    first: First = First.OLDEST


# Although the breaker is open: one of them asks whether the server is back.
FOR_TRIAL = Wanted(TRIAL_CANDIDATES, TRIAL_CANDIDATES, First.LEAST_TRIED)


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


@dataclass(frozen=True, slots=True)
class OutboxCounts:
    """Rows that have not reached the product server, by state; delivered rows are too many to count."""

    waiting: int
    sending: int
    failed: int


_ENQUEUE = text("""
    INSERT INTO product_outbox (event_id, seller_id, item_no, version, event_type, idempotency_key, status, occurred_at)
    SELECT e.event_id, e.seller_id, e.item_no, e.version, e.event_type, e.key, :waiting, e.at
    FROM unnest(CAST(:event_ids AS uuid[]), CAST(:sellers AS text[]), CAST(:items AS bigint[]),
                CAST(:versions AS int[]), CAST(:types AS text[]), CAST(:keys AS text[]), CAST(:times AS timestamptz[]))
         AS e(event_id, seller_id, item_no, version, event_type, key, at)
    ORDER BY e.seller_id COLLATE "C", e.item_no
""")

_SUPERSEDE = text(f"""
    WITH replaced AS (
        SELECT older.outbox_id, newest.outbox_id AS newer
        FROM unnest(CAST(:sellers AS text[]), CAST(:items AS bigint[])) AS p(seller_id, item_no)
        JOIN product_outbox older ON older.seller_id = p.seller_id AND older.item_no = p.item_no
        CROSS JOIN LATERAL (SELECT w.outbox_id FROM product_outbox w
                            WHERE w.seller_id = older.seller_id AND w.item_no = older.item_no
                              AND w.version > older.version
                            ORDER BY w.version DESC LIMIT 1) newest
        WHERE older.status IN ({REPLACEABLE})
        {IN_LOCK_ORDER.format(row="older")}
    )
    UPDATE product_outbox o SET status = {SUPERSEDED}, superseded_by = r.newer, completed_at = now()
    FROM replaced r WHERE o.outbox_id = r.outbox_id
    RETURNING o.outbox_id
""")

_FREE = f"""(SELECT f.outbox_id FROM product_outbox f
              WHERE f.seller_id = o.seller_id AND f.item_no = o.item_no AND f.status IN ({SENDING}) LIMIT 1) IS NULL"""

# A row is sent only while no other version of its product is in flight; the unique index enforces it too. Fresh and
# failing rows are claimed separately, each through its own index, so that neither has to skip the other's rows.
_LANE = f"""
    SELECT o.outbox_id, o.seller_id, o.item_no, o.version, o.next_attempt_at, o.attempts FROM product_outbox o
    WHERE o.status IN ({WAITING}) AND o.failing_since {{state}} AND o.next_attempt_at <= now() AND {_FREE} {{unless}}
    ORDER BY o.next_attempt_at {{end}} LIMIT {{limit}}
    FOR UPDATE OF o SKIP LOCKED
"""
_DUE = f"""
    WITH fresh AS ({_LANE.format(state="IS NULL", end="{end}", limit=":fresh", unless="{unless}")}),
    failing AS ({_LANE.format(state="IS NOT NULL", end="", limit=":failing", unless="{unless}")}),
    due AS (SELECT * FROM fresh UNION ALL SELECT * FROM failing ORDER BY {{order}} LIMIT :limit),
"""

# One statement claims the rows and reads their data: claims are serialised, so each round trip would delay other
# relays.
_CLAIM = f"""
    {{due}} newest AS (
        SELECT due.outbox_id, n.outbox_id AS newer FROM due
        LEFT JOIN LATERAL (SELECT w.outbox_id FROM product_outbox w
                           WHERE w.seller_id = due.seller_id AND w.item_no = due.item_no AND w.version > due.version
                           ORDER BY w.version DESC LIMIT 1) n ON true
    ), taken AS (
        UPDATE product_outbox o
        SET status = CASE WHEN n.newer IS NULL THEN {SENT} ELSE {SUPERSEDED} END,
            superseded_by = n.newer,
            completed_at = CASE WHEN n.newer IS NULL THEN NULL ELSE now() END,
            lease_owner = CASE WHEN n.newer IS NULL THEN CAST(:owner AS text) END,
            lease_no = o.lease_no + 1,
            attempts = o.attempts + CASE WHEN n.newer IS NULL THEN 1 ELSE 0 END,
            lease_expires_at = CASE WHEN n.newer IS NULL THEN now() + make_interval(secs => :lease_seconds) END
        FROM newest n WHERE o.outbox_id = n.outbox_id
        RETURNING o.*
    )
    SELECT o.status = {SENT} AS is_ours, o.outbox_id, o.lease_no, o.seller_id, o.item_no, o.version, o.event_type,
           CAST(o.event_id AS text) AS event_id, o.idempotency_key,
           to_char(o.occurred_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24\\:MI\\:SS.MS"Z"') AS occurred_at,
           o.created_at, o.retry_count, o.last_error, v.life_cycle, v.product_data, CAST(v.changes AS text) AS changes,
           p.delivered_version, d.product_data AS delivered_data,
           (SELECT a.version FROM product_outbox a WHERE a.seller_id = o.seller_id AND a.item_no = o.item_no
            AND a.version < o.version AND a.attempts > 0 LIMIT 1) IS NOT NULL AS tried_before,
           (SELECT a.version FROM product_outbox a WHERE a.seller_id = o.seller_id AND a.item_no = o.item_no
            AND a.version < o.version AND a.version > p.delivered_version AND a.attempts > 0
            -- One that was acknowledged has been undone since, as by a restored backup.
            AND (a.completed_at IS NULL OR a.superseded_by IS NOT NULL)
            AND a.event_type = '{ProductEventType.PRODUCT_DELETED.value}' LIMIT 1) IS NOT NULL AS may_be_deleted,
           o.next_attempt_at, o.failing_since, o.doubted_since, o.attempts, o.attempts > 1 AS sent_before
    FROM taken o
    JOIN products p ON p.seller_id = o.seller_id AND p.item_no = o.item_no
    JOIN product_change_sets v ON v.seller_id = o.seller_id AND v.item_no = o.item_no AND v.version = o.version
    LEFT JOIN LATERAL (SELECT s.product_data FROM product_change_sets s
                       WHERE s.seller_id = o.seller_id AND s.item_no = o.item_no AND s.version = p.delivered_version
                       LIMIT 1) d ON p.delivered_version > 0
    ORDER BY o.next_attempt_at, o.item_no
"""
_UNLESS_OPEN = "AND NOT EXISTS (SELECT FROM circuit_breakers b WHERE b.name = :breaker AND b.open_until IS NOT NULL)"
_CLAIM_FIRST = {
    first: text(
        _CLAIM.format(
            due=_DUE.format(
                end="DESC" if first is First.NEWEST else "",
                order=first.value,
                unless="" if first is First.LEAST_TRIED else _UNLESS_OPEN,
            )
        )
    )
    for first in First
}

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

# A row whose sender is writing its late result is skipped: waiting for it could deadlock.
_RELEASE_EXPIRED = text(f"""
    UPDATE product_outbox SET status = {RELEASED}, lease_owner = NULL, lease_expires_at = NULL
    WHERE outbox_id = ANY(ARRAY(SELECT outbox_id FROM product_outbox
                                WHERE status IN ({SENDING}) AND lease_expires_at < now() FOR UPDATE SKIP LOCKED))
    RETURNING 1
""")

# A waiting row whose product is in flight is due when that claim ends.
_NEXT_DUE = text(f"""
    SELECT extract(epoch FROM least(
        (SELECT o.next_attempt_at FROM product_outbox o
         WHERE o.status IN ({WAITING}) AND o.failing_since IS NULL AND {_FREE} ORDER BY o.next_attempt_at LIMIT 1),
        (SELECT o.next_attempt_at FROM product_outbox o
         WHERE o.status IN ({WAITING}) AND o.failing_since IS NOT NULL AND {_FREE} ORDER BY o.next_attempt_at LIMIT 1),
        (SELECT min(lease_expires_at) FROM product_outbox WHERE status IN ({SENDING}))) - now())
""")

_COUNTS = text(
    "SELECT "
    + ", ".join(
        f"(SELECT count(*) FROM product_outbox WHERE status = '{status.value}' AND {BY_TIME})"
        for status in (OutboxStatus.WAITING, OutboxStatus.SENDING, OutboxStatus.FAILED)
    )
)


def enqueue(connection: Connection, events: Sequence[ProductOutbox]) -> None:
    """Add one row per version; older versions that are not being sent are superseded."""
    if not events:
        return
    values = {
        "waiting": OutboxStatus.WAITING.value,
        # A row's own id stays random: people find it by its first digits.
        "event_ids": time_ordered_uuids(len(events)),
        "sellers": [event.seller_id.value for event in events],
        "items": [event.item_no.value for event in events],
        "versions": [event.version for event in events],
        "types": [event.event_type.value for event in events],
        "keys": [outbox.idempotency_key for outbox in events],
        "times": [event.created_at for event in events],
    }
    connection.execute(_ENQUEUE, values)
    # A first version has none before it.
    if later := [(event.seller_id.value, event.item_no.value) for event in events if event.version > 1]:
        supersede(connection, later)


def supersede(connection: Connection, products: Sequence[tuple[str, int]]) -> set[UUID]:
    """Supersede the rows of these products that are not being sent and have a newer version."""
    values = {"sellers": [seller_id for seller_id, _ in products], "items": [item_no for _, item_no in products]}
    return set(connection.execute(_SUPERSEDE, values).scalars())


def lock_claims(connection: Connection) -> None:
    """One claim at a time: two could each take another version of one product, which its index then refuses."""
    advisory_locks.lock(connection, Only.PRODUCT_OUTBOX_CLAIM)


def claim(
    connection: Connection,
    *,
    owner: str,
    limit: int,
    lease_seconds: float,
    breaker: str = "",
    wanted: Wanted | None = None,
) -> tuple[list[ClaimedEvent], int]:
    """Claim due rows, oldest first unless `wanted` says otherwise; returns them and how many were superseded.

    The caller has called `lock_claims`: one claim at a time. An open breaker lets none through, but for a trial.
    """
    wanted = wanted or Wanted(limit, limit)
    values = {"owner": owner, "limit": limit, "lease_seconds": lease_seconds, "breaker": breaker}
    sizes = {"fresh": wanted.fresh, "failing": wanted.failing}
    rows = connection.execute(_CLAIM_FIRST[wanted.first], values | sizes).all()
    # The other columns are the event's fields, in their order.
    claimed = [ClaimedEvent(*event) for is_ours, *event in rows if is_ours]
    return claimed, len(rows) - len(claimed)


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


def release_expired(connection: Connection) -> int:
    """Release rows whose claim has expired; no try is spent."""
    return len(connection.execute(_RELEASE_EXPIRED).all())


def counts(connection: Connection) -> OutboxCounts:
    """The numbers of rows that have not reached the product server."""
    return OutboxCounts(*connection.execute(_COUNTS).one())


def unsent(connection: Connection) -> int:
    """The number of unsent rows."""
    query = text(f"SELECT count(*) FROM product_outbox WHERE status IN ({UNSENT}) AND {BY_TIME}")
    return connection.execute(query).scalar_one()


def next_due_in(connection: Connection) -> float | None:
    """Seconds until a row can be claimed, or a claim expires; None if nothing is unsent."""
    seconds = connection.execute(_NEXT_DUE).scalar_one()
    return None if seconds is None else max(0.0, float(seconds))
