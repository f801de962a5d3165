"""SQL of the deletion guard: products absent from a sweep, and deletion holds."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection, Row, text

from mustit_pipeline.domain.deletion import DeletionHold
from mustit_pipeline.domain.filters import IdPrefix
from mustit_pipeline.domain.states import DELETION_HOLD, HoldStatus
from mustit_pipeline.domain.values import ExecutionId, SellerId
from mustit_pipeline.foundation.id_prefixes import find_one
from mustit_pipeline.foundation.paging import Page, page


@dataclass(frozen=True, slots=True)
class Absence:
    """The products that were live before a complete sweep, and those it did not see; unpublished ones apart."""

    live: int
    absent: list[int]
    absent_unpublished: list[int]


# Only published products are judged: another seller's items from a wrong page must neither hide a mass deletion nor
# look like one when they disappear.
_ABSENCE = text("""
    SELECT count(*) FILTER (WHERE version > 0) AS live,
           coalesce(array_agg(item_no ORDER BY item_no)
                    FILTER (WHERE version > 0 AND last_seen_execution_id IS DISTINCT FROM :execution_id),
                    '{}') AS absent,
           coalesce(array_agg(item_no ORDER BY item_no)
                    FILTER (WHERE version = 0 AND last_seen_execution_id IS DISTINCT FROM :execution_id),
                    '{}') AS absent_unpublished
    FROM products
    WHERE seller_id = :seller_id AND deleted_at IS NULL AND created_at < :since
""")

_MISSED = text("""
    WITH locked AS (
        SELECT product_id FROM products
        WHERE seller_id = :seller_id AND item_no = ANY(CAST(:items AS bigint[])) AND deleted_at IS NULL
        ORDER BY item_no FOR NO KEY UPDATE
    )
    UPDATE products p SET absent_sweeps = p.absent_sweeps + 1, updated_at = now()
    FROM locked l WHERE p.product_id = l.product_id
    RETURNING p.item_no, p.absent_sweeps
""")

_UNSEE = text("""
    WITH locked AS (
        SELECT product_id FROM products
        WHERE seller_id = :seller_id AND item_no = ANY(CAST(:items AS bigint[]))
        ORDER BY item_no FOR NO KEY UPDATE
    )
    UPDATE products p SET last_seen_execution_id = NULL FROM locked l WHERE p.product_id = l.product_id
""")

_CLOSE = text("""
    UPDATE deletion_holds SET status = :closed, closed_at = now()
    WHERE seller_id = :seller_id AND status = ANY(CAST(:sources AS text[]))
      AND (CAST(:items AS bigint[]) IS NULL OR NOT item_nos @> CAST(:items AS bigint[]))
""")

_HOLD = text("""
    INSERT INTO deletion_holds (seller_id, execution_id, status, live_count, item_nos)
    VALUES (:seller_id, :execution_id, 'OPEN', :live, CAST(:items AS bigint[]))
    ON CONFLICT (seller_id) WHERE status = 'OPEN'
    DO UPDATE SET execution_id = excluded.execution_id, live_count = excluded.live_count, item_nos = excluded.item_nos
    RETURNING hold_id
""")


def absence(connection: Connection, seller_id: str, execution_id: UUID, since: object) -> Absence:
    """How many products were live before the execution began, and which of them its sweep did not see."""
    values = {"seller_id": seller_id, "execution_id": execution_id, "since": since}
    row = connection.execute(_ABSENCE, values).one()
    return Absence(row.live, list(row.absent), list(row.absent_unpublished))


def count_missed(connection: Connection, seller_id: str, items: Sequence[int]) -> dict[int, int]:
    """Count one more absence for these products; returns each product's absences in a row."""
    rows = connection.execute(_MISSED, {"seller_id": seller_id, "items": list(items)})
    return {row.item_no: row.absent_sweeps for row in rows}


def hold(connection: Connection, seller_id: str, execution_id: UUID, absent: Absence) -> UUID:
    """Open the seller's hold, or update the open one; its products lose their last sighting.

    A hold may lose products under its id but never gain any, because an admin may have reviewed it: with more products
    it is closed and a new one opens.
    """
    _close(connection, seller_id, absent.absent)
    values = {"seller_id": seller_id, "execution_id": execution_id, "live": absent.live, "items": absent.absent}
    hold_id = connection.execute(_HOLD, values).scalar_one()
    connection.execute(_UNSEE, {"seller_id": seller_id, "items": absent.absent})
    return hold_id


def close_hold(connection: Connection, seller_id: str) -> None:
    """A sweep under the share ends the hold: absences are counted as usual."""
    _close(connection, seller_id, None)


def _close(connection: Connection, seller_id: str, unless_within: list[int] | None) -> None:
    rules = {
        "sources": [status.value for status in DELETION_HOLD.sources("close")],
        "closed": DELETION_HOLD.target("close").value,
    }
    connection.execute(_CLOSE, {"seller_id": seller_id, "items": unless_within} | rules)


# Few rows: a seller has at most one open hold, and only a suspicious sweep opens one.
_WANTED = """
    (CAST(:status AS text) IS NULL OR status = :status)
      AND (CAST(:seller_id AS text) IS NULL OR seller_id = :seller_id)
"""
_LIST = text(f"""
    SELECT * FROM deletion_holds WHERE {_WANTED}
    ORDER BY status = 'OPEN' DESC, opened_at DESC, hold_id LIMIT :limit OFFSET :first
""")
_COUNT = text(f"SELECT count(*) FROM deletion_holds WHERE {_WANTED}")

_FIND_ALL = text("""
    SELECT * FROM deletion_holds WHERE hold_id = ANY(CAST(:ids AS uuid[])) ORDER BY opened_at DESC, hold_id
""")

_LOCK = text("SELECT * FROM deletion_holds WHERE hold_id = :hold_id FOR UPDATE")

_LOCK_OPEN = text("SELECT hold_id FROM deletion_holds WHERE seller_id = :seller_id AND status = 'OPEN' FOR UPDATE")

# Opening a hold clears last_seen_execution_id. Any execution that sees the product sets it again, even an unfinished
# one, or a resumed one that is older than the hold.
_STILL_ABSENT = text("""
    SELECT item_no FROM products
    WHERE seller_id = :seller_id AND item_no = ANY(CAST(:items AS bigint[])) AND deleted_at IS NULL
      AND last_seen_execution_id IS NULL
    ORDER BY item_no
""")

_COUNT_STILL_ABSENT = text("""
    SELECT coalesce(sum(held.missing), 0) FROM deletion_holds h
    CROSS JOIN LATERAL (SELECT count(*) FROM products p
                        WHERE p.seller_id = h.seller_id AND p.item_no = ANY(h.item_nos) AND p.deleted_at IS NULL
                          AND p.last_seen_execution_id IS NULL) AS held(missing)
    WHERE h.hold_id = ANY(CAST(:ids AS uuid[]))
""")

_NAMES = text("""
    SELECT item_no, CAST(data AS jsonb) ->> 'name' AS name FROM products
    WHERE seller_id = :seller_id AND item_no = ANY(CAST(:items AS bigint[])) AND data IS NOT NULL
""")

_DECIDE = text("UPDATE deletion_holds SET status = :status, closed_at = :at WHERE hold_id = :hold_id")


def newest_holds(
    connection: Connection, *, status: HoldStatus | None, seller_id: SellerId | None, limit: int, first: int = 0
) -> Page[DeletionHold]:
    """Open holds first, then the newest, after the `first` of them."""
    values = _wanted(status, seller_id) | {"limit": limit + 1, "first": first}
    return page(map(_hold, connection.execute(_LIST, values)), limit)


def count_holds(connection: Connection, *, status: HoldStatus | None, seller_id: SellerId | None) -> int:
    """How many such holds there are."""
    return connection.execute(_COUNT, _wanted(status, seller_id)).scalar_one()


def _wanted(status: HoldStatus | None, seller_id: SellerId | None) -> dict[str, object]:
    return {
        "status": None if status is None else status.value,
        "seller_id": None if seller_id is None else seller_id.value,
    }


def find_hold(connection: Connection, wanted: IdPrefix) -> DeletionHold:
    """The one hold whose id has this prefix."""
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


def find_holds(connection: Connection, ids: Collection[UUID]) -> list[DeletionHold]:
    """Several holds, newest first; an id that there is not is left out."""
    return [_hold(row) for row in connection.execute(_FIND_ALL, {"ids": list(ids)})]


def lock_hold(connection: Connection, hold_id: UUID) -> DeletionHold:
    """The hold, locked for a decision; a second decision waits here for the first."""
    return _hold(connection.execute(_LOCK, {"hold_id": hold_id}).one())


def wait_for_decision(connection: Connection, seller_id: str) -> None:
    """Wait for a decision in progress, so that the products it deletes count as deleted."""
    connection.execute(_LOCK_OPEN, {"seller_id": seller_id})


def still_absent(connection: Connection, hold: DeletionHold) -> list[int]:
    """The products of a hold that no execution has seen since."""
    values = {"seller_id": hold.seller_id.value, "items": list(hold.item_nos)}
    return list(connection.execute(_STILL_ABSENT, values).scalars())


def count_still_absent(connection: Connection, holds: Iterable[DeletionHold]) -> int:
    """How many products of several holds no execution has seen since."""
    return int(connection.execute(_COUNT_STILL_ABSENT, {"ids": [hold.id for hold in holds]}).scalar_one())


def names(connection: Connection, seller_id: SellerId, items: Sequence[int]) -> dict[int, str]:
    """The names of products."""
    rows = connection.execute(_NAMES, {"seller_id": seller_id.value, "items": list(items)})
    return {row.item_no: row.name for row in rows}


def decide(connection: Connection, hold: DeletionHold) -> None:
    """Store a decision."""
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
