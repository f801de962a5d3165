"""The product outbox for operators: lists, and retries of failed rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, Row, text

from mustit_pipeline.domain.filters import IdPrefix
from mustit_pipeline.domain.states import PRODUCT_OUTBOX, OutboxStatus, ProductEventType
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.audited import State, Target
from mustit_pipeline.foundation.id_prefixes import find_one
from mustit_pipeline.foundation.paging import Page, page
from mustit_pipeline.foundation.tables import BY_TIME, SELLER_BY_TIME, listed
from mustit_pipeline.outbox.sql.outbox_states import IN_LOCK_ORDER
from mustit_pipeline.outbox.sql.tables import OF_SELLER


@dataclass(frozen=True, slots=True)
class OutboxEntry:
    """One event: its content, its tries and its state."""

    outbox_id: UUID
    event_id: UUID
    seller_id: str
    item_no: int
    version: int
    event_type: ProductEventType
    idempotency_key: str
    status: OutboxStatus
    retry_count: int
    attempts: int
    last_status: int | None
    last_error: str | None
    superseded_by: UUID | None
    # While it waits.
    next_attempt_at: datetime | None
    created_at: datetime
    completed_at: datetime | None


@dataclass(frozen=True, slots=True)
class OutboxKey:
    """The place of an event in the list of all."""

    created_at: datetime
    outbox_id: UUID


@dataclass(frozen=True, slots=True)
class Retried:
    """The numbers of failed rows that wait again, and of those that a newer version has superseded."""

    waiting: list[UUID]
    superseded: list[UUID]


_BEHIND = f"""(o.created_at, o.outbox_id) < (coalesce(CAST(:before AS timestamptz), 'infinity'),
                                         coalesce(CAST(:before_id AS uuid), '{UUID(int=0)}'))"""
_OF_ALL, _OF_SELLER = f"o.{BY_TIME}", f"{SELLER_BY_TIME} = :seller_id AND o.{OF_SELLER}"
# One lookup in the index of each state, of all sellers or of one: no index has the newest rows of all states.
_NEWEST = f"""
    SELECT newest.* FROM unnest(CAST(:statuses AS text[])) AS wanted(status)
    CROSS JOIN LATERAL (
        SELECT * FROM product_outbox o
        WHERE o.status = wanted.status AND {{whose}} AND {_BEHIND}
        ORDER BY o.created_at DESC, o.outbox_id DESC LIMIT :limit
    ) AS newest
    ORDER BY newest.created_at DESC, newest.outbox_id DESC LIMIT :limit
"""
_NEWEST_OF_ALL, _NEWEST_OF_SELLER = (text(_NEWEST.format(whose=whose)) for whose in (_OF_ALL, _OF_SELLER))

_FAILED = f"o.status IN ({listed(PRODUCT_OUTBOX.sources('retry'))})"

# Versions only grow: if a newer one exists, delivered or not, the failed one is superseded.
_RETRY = """
    WITH failed AS (
        SELECT o.outbox_id, o.seller_id, o.item_no, o.version FROM product_outbox o
        WHERE {which} {in_lock_order}
    ), judged AS (
        SELECT f.outbox_id, n.outbox_id AS newer FROM failed f
        LEFT JOIN LATERAL (SELECT w.outbox_id FROM product_outbox w
                           WHERE w.seller_id = f.seller_id AND w.item_no = f.item_no AND w.version > f.version
                           ORDER BY w.version DESC LIMIT 1) n ON true
    )
    UPDATE product_outbox o
    SET status = CASE WHEN j.newer IS NULL THEN :waiting ELSE :superseded END,
        superseded_by = j.newer,
        completed_at = CASE WHEN j.newer IS NULL THEN NULL ELSE now() END,
        retry_count = CASE WHEN j.newer IS NULL THEN 0 ELSE o.retry_count END,
        doubted_since = NULL,
        next_attempt_at = now()
    FROM judged j WHERE o.outbox_id = j.outbox_id
    RETURNING o.outbox_id, o.superseded_by
"""
_RETRY_ALL, _RETRY_OF_SELLER, _RETRY_ONE = (
    text(_RETRY.format(which=f"{_FAILED} AND {which}", in_lock_order=IN_LOCK_ORDER.format(row="o")))
    for which in (_OF_ALL, _OF_SELLER, "o.outbox_id = :outbox_id")
)

_FAILED_OF_ALL, _FAILED_OF_SELLER = (
    text(f"SELECT count(*) FROM product_outbox o WHERE {_FAILED} AND {whose}") for whose in (_OF_ALL, _OF_SELLER)
)


def newest(
    connection: Connection,
    *,
    status: OutboxStatus | None,
    seller_id: SellerId | None,
    limit: int,
    behind: OutboxKey | None = None,
) -> Page[OutboxEntry]:
    """Events, newest first; those behind a place in the list where it is given."""
    values: dict[str, object] = {
        "statuses": [status.value] if status else [known.value for known in OutboxStatus],
        "before": None if behind is None else behind.created_at,
        "before_id": None if behind is None else behind.outbox_id,
        "limit": limit + 1,
    }
    if seller_id is None:
        found = connection.execute(_NEWEST_OF_ALL, values)
    else:
        found = connection.execute(_NEWEST_OF_SELLER, values | {"seller_id": seller_id.value})
    return page(map(_entry, found), limit)


def find(connection: Connection, wanted: IdPrefix) -> OutboxEntry:
    """The one event whose id has this prefix."""
    row = find_one(
        connection,
        "product_outbox",
        "outbox_id",
        wanted,
        code="NOT_FOUND_OUTBOX",
        korean="전송 이벤트를",
        thing="event",
        listing="mustit outbox list",
    )
    return _entry(row)


def retry_one(connection: Connection, wanted: IdPrefix) -> Retried:
    """Retry one failed event with all its tries; any other state is refused."""
    entry = find(connection, wanted)
    PRODUCT_OUTBOX.move(entry.status, "retry")
    rows = connection.execute(_RETRY_ONE, _moves() | {"outbox_id": entry.outbox_id}).all()
    if not rows:
        # Its state changed since it was read: refuse with the present state.
        PRODUCT_OUTBOX.move(find(connection, wanted).status, "retry")
    return _retried(rows)


def retry_all(connection: Connection, *, status: OutboxStatus, seller_id: SellerId | None) -> Retried:
    """Retry every failed event, of one seller or of all; other states cannot be retried."""
    PRODUCT_OUTBOX.move(status, "retry")
    if seller_id is None:
        return _retried(connection.execute(_RETRY_ALL, _moves()).all())
    return _retried(connection.execute(_RETRY_OF_SELLER, _moves() | {"seller_id": seller_id.value}).all())


def target(outbox_id: UUID) -> Target:
    """An event as the audit log shows it."""

    def seen(connection: Connection) -> State:
        entry = find(connection, IdPrefix(str(outbox_id)))
        return {"status": entry.status.value, "retryCount": entry.retry_count}

    return Target(f"outbox {outbox_id}", seen)


def count_failed(connection: Connection, seller_id: SellerId | None) -> int:
    """The number of failed events, of one seller or of all."""
    if seller_id is None:
        return connection.execute(_FAILED_OF_ALL).scalar_one()
    return connection.execute(_FAILED_OF_SELLER, {"seller_id": seller_id.value}).scalar_one()


def target_of_failed(seller_id: SellerId | None) -> Target:
    """All failed events, of one seller or of all, as the audit log shows them."""
    name = "outbox" if seller_id is None else f"outbox of {seller_id}"
    return Target(name, lambda connection: {"failed": count_failed(connection, seller_id)})


def _moves() -> dict[str, object]:
    return {
        "waiting": PRODUCT_OUTBOX.target("retry").value,
        "superseded": PRODUCT_OUTBOX.target("supersede").value,
    }


def _retried(rows: Sequence[Row[tuple[object, ...]]]) -> Retried:
    return Retried(
        waiting=[row.outbox_id for row in rows if row.superseded_by is None],
        superseded=[row.outbox_id for row in rows if row.superseded_by is not None],
    )


def _entry(row: Row[tuple[object, ...]]) -> OutboxEntry:
    return OutboxEntry(
        outbox_id=row.outbox_id,
        event_id=row.event_id,
        seller_id=row.seller_id,
        item_no=row.item_no,
        version=row.version,
        event_type=ProductEventType(row.event_type),
        idempotency_key=row.idempotency_key,
        status=OutboxStatus(row.status),
        retry_count=row.retry_count,
        attempts=row.attempts,
        last_status=row.last_status,
        last_error=row.last_error,
        superseded_by=row.superseded_by,
        next_attempt_at=row.next_attempt_at if row.status == OutboxStatus.WAITING.value else None,
        created_at=row.created_at,
        completed_at=row.completed_at,
    )
