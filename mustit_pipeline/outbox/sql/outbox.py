"""The product outbox: a row is written with its version, and claimed for a time by the relay that sends it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from msgspec import Struct
from sqlalchemy import Connection, TextClause, text

from mustit_pipeline.domain.outbox import ProductOutbox
from mustit_pipeline.domain.states import PRODUCT_OUTBOX, OutboxStatus, ProductEventType
from mustit_pipeline.domain.values import ItemNo, OutboxId, SellerId
from mustit_pipeline.foundation import advisory_locks
from mustit_pipeline.foundation.advisory_locks import Only
from mustit_pipeline.foundation.tables import BY_TIME
from mustit_pipeline.outbox.sql.outbox_states import (
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


class ClaimedEvent(Struct, frozen=True):
    """A claimed row, with the state to send and the state that the product server is known to have."""

    row_id: UUID
    lease_no: int
    seller_id: str
    item_no: int
    version: int
    # As it was written; `delivery/events.py` says what it goes out as.
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


@dataclass(frozen=True, slots=True)
class Wanted:
    """How many due rows a claim may take: rows that never failed, from which end, and rows that failed."""

    fresh: int
    failing: int
    newest_first: bool = False


@dataclass(frozen=True, slots=True)
class OutboxCounts:
    """Rows that have not reached the product server, by state; delivered rows are too many to count."""

    waiting: int
    sending: int
    failed: int


_ENQUEUE = text("""
    INSERT INTO product_outbox (seller_id, item_no, version, event_type, idempotency_key, status, occurred_at)
    SELECT e.seller_id, e.item_no, e.version, e.event_type, e.key, :waiting, e.at
    FROM unnest(CAST(:sellers AS text[]), CAST(:items AS bigint[]), CAST(:versions AS int[]), CAST(:types AS text[]),
                CAST(:keys AS text[]), CAST(:times AS timestamptz[]))
         AS e(seller_id, item_no, version, event_type, key, at)
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
_CLAIM_DUE = text(_CLAIM.format(due=_DUE.format(end="", order="next_attempt_at", unless=_UNLESS_OPEN)))
_CLAIM_NEWEST = text(_CLAIM.format(due=_DUE.format(end="DESC", order="next_attempt_at DESC", unless=_UNLESS_OPEN)))
# The trial row is one of the due rows with the fewest attempts: a row that breaks every connection must not keep the
# breaker open for all others.
_CLAIM_TRIAL = text(_CLAIM.format(due=_DUE.format(end="", order="attempts, next_attempt_at", unless="")))

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

    The caller has called `lock_claims`: one claim at a time. An open breaker lets none through.
    """
    wanted = wanted or Wanted(limit, limit)
    query = _CLAIM_NEWEST if wanted.newest_first else _CLAIM_DUE
    values = {"owner": owner, "limit": limit, "lease_seconds": lease_seconds, "breaker": breaker}
    return _claimed(connection, query, values | {"fresh": wanted.fresh, "failing": wanted.failing})


def claim_for_trial(
    connection: Connection, *, owner: str, limit: int, lease_seconds: float
) -> tuple[list[ClaimedEvent], int]:
    """The same although the breaker is open, and those first that were tried least."""
    values = {"owner": owner, "limit": limit, "lease_seconds": lease_seconds}
    return _claimed(connection, _CLAIM_TRIAL, values | {"fresh": TRIAL_CANDIDATES, "failing": TRIAL_CANDIDATES})


def _claimed(connection: Connection, query: TextClause, values: Mapping[str, object]) -> tuple[list[ClaimedEvent], int]:
    rows = connection.execute(query, values).all()
    # The other columns are the event's fields, in their order.
    claimed = [ClaimedEvent(*event) for is_ours, *event in rows if is_ours]
    return claimed, len(rows) - len(claimed)


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
