"""Raw bodies as an operator looks at them: without the bodies."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, Row, TextClause, text

from mustit_pipeline.domain.states import RawStatus, TaskType
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.paging import Page, page


@dataclass(frozen=True, slots=True)
class RawEntry:
    """One body: where it came from, and what became of it."""

    raw_id: int
    seller_id: str
    execution_id: UUID
    source: TaskType
    item_no: int | None
    page_no: int | None
    status: RawStatus
    attempts: int
    size: int
    error_code: str | None
    error_text: str | None
    fetched_at: datetime
    processed_at: datetime | None


_COLUMNS = """raw_id, seller_id, execution_id, source, item_no, page_no, status, attempts,
           octet_length(body) AS size, error_code, error_text, fetched_at, processed_at"""


def _newest(statuses: Iterable[RawStatus]) -> TextClause:
    """Seller by seller and state by state, because the indexes are: the newest of all are among the newest of each."""
    each = " UNION ALL ".join(
        f"""
        (SELECT {_COLUMNS} FROM product_raw_data r
         WHERE r.seller_id = s.seller_id AND r.status = '{status.value}'
           AND (CAST(:since AS timestamptz) IS NULL OR r.fetched_at >= :since)
         ORDER BY r.fetched_at DESC LIMIT :limit)"""
        for status in statuses
    )
    return text(f"""
        SELECT newest.* FROM sellers s CROSS JOIN LATERAL ({each}) AS newest
        WHERE CAST(:seller_id AS text) IS NULL OR s.seller_id = :seller_id
        ORDER BY newest.fetched_at DESC, newest.raw_id DESC LIMIT :limit
    """)


_NEWEST = _newest(RawStatus)
_NEWEST_OF = {status: _newest([status]) for status in RawStatus}

_COUNT_FAILED = text("""
    SELECT seller_id, count(*) AS number FROM product_raw_data
    WHERE status = 'FAILED' AND (CAST(:seller_id AS text) IS NULL OR seller_id = :seller_id)
      AND (CAST(:since AS timestamptz) IS NULL OR fetched_at >= :since)
      AND (CAST(:until AS timestamptz) IS NULL OR fetched_at < :until)
    GROUP BY seller_id ORDER BY seller_id
""")


def newest(
    connection: Connection,
    *,
    status: RawStatus | None,
    seller_id: SellerId | None,
    since: datetime | None,
    limit: int,
) -> Page[RawEntry]:
    """Bodies, newest first."""
    values: dict[str, object] = {
        "seller_id": None if seller_id is None else seller_id.value,
        "since": since,
        "limit": limit + 1,
    }
    found = connection.execute(_NEWEST if status is None else _NEWEST_OF[status], values)
    return page((_entry(row) for row in found), limit)


def count_failed(
    connection: Connection, seller_id: SellerId | None, since: datetime | None, until: datetime | None
) -> dict[str, int]:
    """How many bodies could not be processed, of one seller or of each."""
    values = {"seller_id": None if seller_id is None else seller_id.value, "since": since, "until": until}
    return {row.seller_id: row.number for row in connection.execute(_COUNT_FAILED, values)}


def _entry(row: Row[tuple[object, ...]]) -> RawEntry:
    return RawEntry(
        raw_id=row.raw_id,
        seller_id=row.seller_id,
        execution_id=row.execution_id,
        source=TaskType(row.source),
        item_no=row.item_no,
        page_no=row.page_no,
        status=RawStatus(row.status),
        attempts=row.attempts,
        size=row.size,
        error_code=row.error_code,
        error_text=row.error_text,
        fetched_at=row.fetched_at,
        processed_at=row.processed_at,
    )
