"""What the deletion guard needs to know: who was absent from a sweep, and which deletions are held back."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection, text

from mustit_pipeline.domain.states import DELETION_HOLD


@dataclass(frozen=True, slots=True)
class Absence:
    """A complete sweep against what was live before it; what was never published is missed by nobody."""

    live: int
    absent: list[int]
    absent_unpublished: list[int]


# Only published products have a share in the judgement: another seller's items that a wrong page brought in must
# neither hide a mass deletion nor look like one when they are gone.
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
    """Who was live before the execution began, and which of them its sweep did not see."""
    values = {"seller_id": seller_id, "execution_id": execution_id, "since": since}
    row = connection.execute(_ABSENCE, values).one()
    return Absence(row.live, list(row.absent), list(row.absent_unpublished))


def count_missed(connection: Connection, seller_id: str, items: Sequence[int]) -> dict[int, int]:
    """Count one more absence of these products; returns how often each has been absent in a row."""
    rows = connection.execute(_MISSED, {"seller_id": seller_id, "items": list(items)})
    return {row.item_no: row.absent_sweeps for row in rows}


def hold(connection: Connection, seller_id: str, execution_id: UUID, absent: Absence) -> UUID:
    """Open the seller's hold, or bring the open one up to date; from now on its products have been seen by nobody.

    What an admin has looked at may become less under its id, but never more: then that entry ends, and a new one opens.
    """
    _close(connection, seller_id, absent.absent)
    values = {"seller_id": seller_id, "execution_id": execution_id, "live": absent.live, "items": absent.absent}
    hold_id = connection.execute(_HOLD, values).scalar_one()
    connection.execute(_UNSEE, {"seller_id": seller_id, "items": absent.absent})
    return hold_id


def close_hold(connection: Connection, seller_id: str) -> None:
    """A sweep under the share ends the hold: what is absent goes the normal way."""
    _close(connection, seller_id, None)


def _close(connection: Connection, seller_id: str, unless_within: list[int] | None) -> None:
    rules = {
        "sources": [status.value for status in DELETION_HOLD.sources("close")],
        "closed": DELETION_HOLD.target("close").value,
    }
    connection.execute(_CLOSE, {"seller_id": seller_id, "items": unless_within} | rules)
