"""Changes ready to be published: how many of them look wrong, and which sellers have a change hold."""

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import Connection, Row, text

from mustit_pipeline.catalog.sql.publication import NEWEST_VERSION, OPEN_TASK_OF_PRODUCT, READY
from mustit_pipeline.domain.change_hold import ChangeHold, Suspicion
from mustit_pipeline.domain.errors import NotFound
from mustit_pipeline.domain.states import CHANGE_HOLD, ChangeHoldStatus
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.paging import Page, page

EXAMPLES = 10
PRICES = ("normalPrice", "sellingPrice", "discountPrice")
# Essential fields: a product that loses one of them looks like a parsing error of ours.
ESSENTIAL = (*((name,) for name in ("name", "brandName", *PRICES, "stock", "images")), ("category", "header"))
# productData is written by us with its fields in a fixed order, so a product without any price is found without
# parsing.
UNPRICED = ",".join(f'"{name}":null' for name in PRICES)

_EMPTY = """coalesce({0} #> '{{{1}}}', 'null') IN ('null', '""', '[]', '{{}}')"""


def _emptied(path: tuple[str, ...]) -> str:
    where = ",".join(path)
    return f"({_EMPTY.format('d.new', where)} AND NOT {_EMPTY.format('d.old', where)})"


def _jumped(name: str) -> str:
    new, old = (f"CAST(d.{state} ->> '{name}' AS numeric)" for state in ("new", "old"))
    return f"({old} > 0 AND ({new} * :factor < {old} OR {new} > {old} * :factor))"


_SUSPICIOUS = text(f"""
    SELECT count(*) FILTER (WHERE s.jumped) AS jumped, count(*) FILTER (WHERE s.emptied) AS emptied,
           count(*) AS suspicious, (array_agg(s.item_no ORDER BY s.item_no))[1:{EXAMPLES}] AS examples
    FROM (
        SELECT p.item_no,
               coalesce({" OR ".join(map(_jumped, PRICES))}, false) AS jumped,
               CASE WHEN p.version = 0 THEN p.data LIKE :unpriced
                    WHEN d.old IS NOT NULL THEN {" OR ".join(map(_emptied, ESSENTIAL))} END AS emptied
        FROM products p
        {NEWEST_VERSION}
        CROSS JOIN LATERAL (SELECT CASE WHEN p.version > 0 THEN CAST(p.data AS jsonb) END AS new,
                                   CAST(c.product_data AS jsonb) AS old OFFSET 0) AS d
        WHERE {READY}
    ) AS s
    WHERE s.jumped OR s.emptied
""")

# During a sweep only the products that it has seen so far: a crawl of many slices is judged by those.
_LOOKED_AT = text(f"""
    SELECT count(*) FROM products p
    LEFT JOIN crawling_schedule_executions e
           ON e.seller_id = :seller_id AND e.status IN ('PENDING', 'RUNNING', 'PAUSED')
    WHERE p.seller_id = :seller_id AND p.complete AND p.deleted_at IS NULL
      AND (e.execution_id IS NULL
           OR ((e.sweep_status <> 'PENDING' OR p.last_seen_execution_id = e.execution_id)
               AND {OPEN_TASK_OF_PRODUCT} IS NULL))
""")

_HOLD = text(f"""
    INSERT INTO change_holds (seller_id, status, jumped, emptied, suspicious, looked_at, examples)
    VALUES (:seller_id, '{ChangeHoldStatus.OPEN.value}', :jumped, :emptied, :suspicious, :looked_at,
            CAST(:examples AS bigint[]))
    ON CONFLICT (seller_id) WHERE status = '{ChangeHoldStatus.OPEN.value}' DO UPDATE SET
        jumped = excluded.jumped, emptied = excluded.emptied, suspicious = excluded.suspicious,
        looked_at = excluded.looked_at, examples = excluded.examples
""")

# While a crawl is under way, products that are still to be fetched are not judged, so a hold cannot close.
_UNDER_WAY = """
    EXISTS (SELECT FROM crawling_schedule_executions e
            WHERE e.seller_id = :seller_id AND e.status IN ('PENDING', 'RUNNING', 'PAUSED')
              AND (e.sweep_status = 'PENDING' OR e.completed_tasks + e.failed_tasks < e.total_tasks))
"""
_CLOSE = text(f"""
    UPDATE change_holds SET status = '{CHANGE_HOLD.target("close").value}', closed_at = :at
    WHERE seller_id = :seller_id AND status = '{ChangeHoldStatus.OPEN.value}' AND NOT {_UNDER_WAY}
""")

_RELEASE = text(f"""
    UPDATE change_holds SET status = :status, closed_at = :at
    WHERE hold_id = :hold_id AND status = '{ChangeHoldStatus.OPEN.value}'
""")

# Few rows: a seller has at most one open hold, and only a suspicious crawl opens one.
_WANTED = """
    (CAST(:status AS text) IS NULL OR status = :status)
      AND (CAST(:seller_id AS text) IS NULL OR seller_id = :seller_id)
"""
_LIST = text(f"""
    SELECT * FROM change_holds WHERE {_WANTED}
    ORDER BY status = 'OPEN' DESC, opened_at DESC, hold_id LIMIT :limit OFFSET :first
""")
_COUNT = text(f"SELECT count(*) FROM change_holds WHERE {_WANTED}")

_OPEN_OF = text("""
    SELECT * FROM change_holds WHERE seller_id = ANY(CAST(:sellers AS text[])) AND status = 'OPEN'
    ORDER BY opened_at DESC, hold_id
""")


def suspicious(connection: Connection, seller_id: str, factor: float) -> Suspicion:
    """Products ready to be published whose price jumps, that lose an essential field, or that have no price."""
    values = {"seller_id": seller_id, "factor": factor, "unpriced": f"%{UNPRICED}%"}
    row = connection.execute(_SUSPICIOUS, values).one()
    return Suspicion(row.jumped, row.emptied, row.suspicious, 0, tuple(row.examples or ()))


def among_all(connection: Connection, seller_id: str, found: Suspicion) -> Suspicion:
    """The same, with the number of products that were judged."""
    looked_at = connection.execute(_LOOKED_AT, {"seller_id": seller_id}).scalar_one()
    return Suspicion(found.jumped, found.emptied, found.suspicious, looked_at, found.examples)


def hold(connection: Connection, seller_id: str, found: Suspicion) -> None:
    """Hold a seller's changes back; an open hold is updated with the newest numbers."""
    values = {
        "seller_id": seller_id,
        "jumped": found.jumped,
        "emptied": found.emptied,
        "suspicious": found.suspicious,
        "looked_at": found.looked_at,
        "examples": list(found.examples),
    }
    connection.execute(_HOLD, values)


def crawl_under_way(connection: Connection, seller_id: str) -> bool:
    """Whether a crawl still has products of this seller to fetch, so that not all changes are known."""
    return connection.execute(text(f"SELECT {_UNDER_WAY}"), {"seller_id": seller_id}).scalar_one()


def close(connection: Connection, seller_id: str, at: datetime) -> None:
    """Close an open hold: the ready changes are plausible."""
    connection.execute(_CLOSE, {"seller_id": seller_id, "at": at})


def release(connection: Connection, released: ChangeHold) -> None:
    """Store an admin's release; a hold that has closed by itself stays closed."""
    values = {"hold_id": released.id, "status": released.status.value, "at": released.closed_at}
    connection.execute(_RELEASE, values)


def newest(
    connection: Connection,
    *,
    status: ChangeHoldStatus | None,
    limit: int,
    seller_id: SellerId | None = None,
    first: int = 0,
) -> Page[ChangeHold]:
    """Open holds first, then the newest, after the `first` of them."""
    values = _wanted(status, seller_id) | {"limit": limit + 1, "first": first}
    return page(map(_hold, connection.execute(_LIST, values)), limit)


def count(connection: Connection, *, status: ChangeHoldStatus | None, seller_id: SellerId | None = None) -> int:
    """How many such holds there are."""
    return connection.execute(_COUNT, _wanted(status, seller_id)).scalar_one()


def _wanted(status: ChangeHoldStatus | None, seller_id: SellerId | None) -> dict[str, object]:
    return {
        "status": None if status is None else status.value,
        "seller_id": None if seller_id is None else seller_id.value,
    }


def open_of(connection: Connection, sellers: Iterable[SellerId]) -> list[ChangeHold]:
    """The open holds of some sellers, newest first."""
    values = {"sellers": [seller_id.value for seller_id in sellers]}
    return [_hold(row) for row in connection.execute(_OPEN_OF, values)]


def find_open(connection: Connection, seller_id: SellerId) -> ChangeHold:
    """The seller's open hold."""
    found = open_of(connection, [seller_id])
    if not found:
        raise NotFound(
            "NOT_FOUND_CHANGE_HOLD",
            korean=f"보류된 변경이 없습니다: {seller_id}",
            english=f"No changes of {seller_id} are held back: see `mustit holds list`",
        )
    return found[0]


def _hold(row: Row[tuple[object, ...]]) -> ChangeHold:
    return ChangeHold(
        id=row.hold_id,
        seller_id=SellerId(row.seller_id),
        suspicion=Suspicion(row.jumped, row.emptied, row.suspicious, row.looked_at, tuple(row.examples)),
        opened_at=row.opened_at,
        status=ChangeHoldStatus(row.status),
        closed_at=row.closed_at,
    )
