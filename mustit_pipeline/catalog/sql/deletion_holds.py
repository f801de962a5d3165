"""Held deletions: looked at, locked for a decision, decided."""

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import Connection, Row, text

from mustit_pipeline.domain.deletion import DeletionHold
from mustit_pipeline.domain.filters import IdPrefix
from mustit_pipeline.domain.states import HoldStatus
from mustit_pipeline.domain.values import ExecutionId, SellerId
from mustit_pipeline.foundation.id_prefixes import find_one
from mustit_pipeline.foundation.paging import Page, page

# There are few holds: one per seller can be open, and only a suspicious sweep makes one.
_LIST = text("""
    SELECT * FROM deletion_holds
    WHERE (CAST(:status AS text) IS NULL OR status = :status)
      AND (CAST(:seller_id AS text) IS NULL OR seller_id = :seller_id)
    ORDER BY status = 'OPEN' DESC, opened_at DESC LIMIT :limit
""")

_LOCK = text("SELECT * FROM deletion_holds WHERE hold_id = :hold_id FOR UPDATE")

_LOCK_OPEN = text("SELECT hold_id FROM deletion_holds WHERE seller_id = :seller_id AND status = 'OPEN' FOR UPDATE")

# A hold forgets who saw its products last. Seen again is what any execution has seen since, however far it came and
# whenever it was opened: one that is resumed may be older than the hold's.
_STILL_ABSENT = text("""
    SELECT item_no FROM products
    WHERE seller_id = :seller_id AND item_no = ANY(CAST(:items AS bigint[])) AND deleted_at IS NULL
      AND last_seen_execution_id IS NULL
    ORDER BY item_no
""")

_NAMES = text("""
    SELECT item_no, CAST(data AS jsonb) ->> 'name' AS name FROM products
    WHERE seller_id = :seller_id AND item_no = ANY(CAST(:items AS bigint[])) AND data IS NOT NULL
""")

_DECIDE = text("UPDATE deletion_holds SET status = :status, closed_at = :at WHERE hold_id = :hold_id")


def newest(
    connection: Connection, *, status: HoldStatus | None, seller_id: SellerId | None, limit: int
) -> Page[DeletionHold]:
    """Open holds first, then the newest."""
    values = {
        "status": None if status is None else status.value,
        "seller_id": None if seller_id is None else seller_id.value,
        "limit": limit + 1,
    }
    return page(map(_hold, connection.execute(_LIST, values)), limit)


def find(connection: Connection, wanted: IdPrefix) -> DeletionHold:
    """The one hold whose id begins so."""
    row = find_one(
        connection,
        "deletion_holds",
        "hold_id",
        wanted,
        code="NOT_FOUND_DELETION_HOLD",
        korean="삭제 보류를",
        thing="hold",
        listing="mustit deletions list",
    )
    return _hold(row)


def lock(connection: Connection, hold_id: UUID) -> DeletionHold:
    """The hold to decide on; a second decision waits here for the first."""
    return _hold(connection.execute(_LOCK, {"hold_id": hold_id}).one())


def wait_for_decision(connection: Connection, seller_id: str) -> None:
    """Let a decision that is being taken end first, so that what it deletes counts as deleted."""
    connection.execute(_LOCK_OPEN, {"seller_id": seller_id})


def still_absent(connection: Connection, hold: DeletionHold) -> list[int]:
    """The products of a hold that nobody has seen since."""
    values = {"seller_id": hold.seller_id.value, "items": list(hold.item_nos)}
    return list(connection.execute(_STILL_ABSENT, values).scalars())


def names(connection: Connection, seller_id: SellerId, items: Sequence[int]) -> dict[int, str]:
    """What products are called."""
    rows = connection.execute(_NAMES, {"seller_id": seller_id.value, "items": list(items)})
    return {row.item_no: row.name for row in rows}


def decide(connection: Connection, hold: DeletionHold) -> None:
    """Write a decision down."""
    values = {"hold_id": hold.id, "status": hold.status.value, "at": hold.closed_at}
    connection.execute(_DECIDE, values)


def _hold(row: Row[tuple[object, ...]]) -> DeletionHold:
    return DeletionHold(
        id=row.hold_id,
        seller_id=SellerId(row.seller_id),
        execution_id=ExecutionId(row.execution_id),
        live_count=row.live_count,
        item_nos=tuple(row.item_nos),
        opened_at=row.opened_at,
        status=HoldStatus(row.status),
        closed_at=row.closed_at,
    )
