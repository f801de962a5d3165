"""Raw marketplace bodies: stored with their task, processed once, kept for replay."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec import Struct
from sqlalchemy import Connection, Row, TextClause, text

from mustit_pipeline.catalog.sql.tables import OF_ITEM
from mustit_pipeline.domain.errors import NotFound
from mustit_pipeline.domain.states import RAW, RawStatus, TaskType
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation import advisory_locks
from mustit_pipeline.foundation.advisory_locks import PerName
from mustit_pipeline.foundation.paging import Page, page

# Bodies that one statement compares with the catalog.
SETTLED_TOGETHER = 2000


class NewRaw(Struct, frozen=True):
    """A body as fetched, on its way into the table."""

    seller_id: str
    execution_id: UUID
    task_id: UUID
    source: TaskType
    item_no: int | None
    page_no: int | None
    body: str
    # When the answer arrived: if two pages show a product, the later one counts, whichever is stored first.
    fetched_at: datetime
    content: str | None = None
    content_hash: str | None = None
    # Why the worker refused it; that counts as its first attempt.
    error_code: str | None = None
    error_text: str | None = None

    @property
    def status(self) -> RawStatus:
        """Its status when it is stored."""
        return RawStatus.PENDING if self.error_code is None else RAW.target("fail")


class RawRow(Struct, frozen=True):
    """A body that waits to be processed; where its content is known already, the body itself stays where it is."""

    raw_id: int
    execution_id: UUID
    fetched_at: datetime
    source: TaskType
    item_no: int | None
    body: str
    content: str | None
    content_hash: str | None
    # Its attempts when it was read; a body that was processed and reopened meanwhile has a higher number.
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class RawFailure:
    """Why a body could not be processed."""

    raw_id: int
    code: str
    reason: str


_PROCESS, _FAIL, _RETRY, _REPLAY = (
    {"target": RAW.target(move).value, "sources": [status.value for status in RAW.sources(move)]}
    for move in ("process", "fail", "retry", "replay")
)

_COPY = """
    COPY product_raw_data (seller_id, execution_id, task_id, source, item_no, page_no, body, fetched_at, content,
                           content_hash, status, error_code, error_text, attempts)
    FROM STDIN (FORMAT binary)
"""
_COPY_TYPES = (
    *("text", "uuid", "uuid", "text", "int8", "int4", "text", "timestamptz"),
    *("text", "text", "text", "text", "text", "int2"),
)

# The processing order, decided only here: listing pages first, by fetch time; then the rest by product, and the bodies
# of one call as they were stored. While a listing page waits, only listing pages are taken.
_PENDING = text("""
    WITH listings AS (
        SELECT raw_id FROM product_raw_data
        WHERE seller_id = :seller_id AND status = 'PENDING' AND source = 'MINISHOP'
          AND raw_id <> ALL(CAST(:beside AS bigint[]))
        ORDER BY fetched_at, raw_id LIMIT :pages
    ), details AS (
        SELECT raw_id, item_no FROM product_raw_data
        WHERE seller_id = :seller_id AND status = 'PENDING' AND source = 'PRODUCT_DETAIL'
          AND raw_id <> ALL(CAST(:beside AS bigint[]))
        ORDER BY item_no, raw_id LIMIT :products
    ), options AS (
        SELECT raw_id, item_no FROM product_raw_data
        WHERE seller_id = :seller_id AND status = 'PENDING' AND source = 'PRODUCT_OPTION'
          AND raw_id <> ALL(CAST(:beside AS bigint[]))
        ORDER BY item_no, raw_id LIMIT :products
    ), others AS (
        SELECT raw_id FROM (SELECT * FROM details UNION ALL SELECT * FROM options) AS fetched
        WHERE NOT EXISTS (SELECT FROM listings)
        ORDER BY item_no, raw_id LIMIT :products
    )
    SELECT raw_id, execution_id, fetched_at, source, item_no, CASE WHEN content IS NULL THEN body ELSE '' END AS body,
           content, content_hash, attempts
    FROM product_raw_data
    WHERE raw_id = ANY(ARRAY(SELECT raw_id FROM listings UNION ALL SELECT raw_id FROM others))
    ORDER BY item_no, CASE source WHEN 'MINISHOP' THEN 0 WHEN 'PRODUCT_DETAIL' THEN 1 ELSE 2 END,
             CASE source WHEN 'MINISHOP' THEN fetched_at END, raw_id
""")

# An older body of the same call that was reopened comes first, or it would undo the newer one.
_STILL_NEXT = text("""
    SELECT raw_id, attempts FROM product_raw_data r
    WHERE raw_id = ANY(CAST(:ids AS bigint[])) AND status = 'PENDING'
      AND CASE source WHEN 'MINISHOP' THEN (
          SELECT o.raw_id FROM product_raw_data o
          WHERE o.seller_id = :seller_id AND o.status = 'PENDING' AND o.source = 'MINISHOP'
            AND (o.fetched_at, o.raw_id) < (r.fetched_at, r.raw_id) AND o.raw_id <> ALL(CAST(:ids AS bigint[]))
          LIMIT 1) IS NULL
      ELSE (
          SELECT o.raw_id FROM product_raw_data o
          WHERE o.seller_id = :seller_id AND o.status = 'PENDING' AND o.source = 'MINISHOP' LIMIT 1) IS NULL AND (
          SELECT o.raw_id FROM product_raw_data o
          WHERE o.seller_id = :seller_id AND o.status = 'PENDING' AND o.source = r.source AND o.item_no = r.item_no
            AND o.raw_id < r.raw_id AND o.raw_id <> ALL(CAST(:ids AS bigint[]))
          LIMIT 1) IS NULL END
""")

# Only rows of this transaction: an earlier body of the same task was stored by an earlier one. One by one (OFFSET 0),
# because there is no index on tasks, and a join would read all waiting bodies.
_TAKE_BACK = text("""
    WITH late AS (
        SELECT * FROM unnest(CAST(:sellers AS text[]), CAST(:sources AS text[]), CAST(:items AS bigint[]),
                             CAST(:tasks AS uuid[])) AS late(seller_id, source, item_no, task_id)
    ), ours AS (
        SELECT r.raw_id FROM late CROSS JOIN LATERAL (
            SELECT raw_id FROM product_raw_data r
            WHERE r.seller_id = late.seller_id AND r.source = late.source AND r.item_no = late.item_no
              AND r.task_id = late.task_id AND r.status = 'PENDING' AND r.xmin = pg_current_xact_id()::xid
            OFFSET 0) AS r
        UNION ALL
        SELECT r.raw_id FROM late CROSS JOIN LATERAL (
            SELECT raw_id FROM product_raw_data r
            WHERE late.item_no IS NULL AND r.seller_id = late.seller_id AND r.source = late.source
              AND r.item_no IS NULL AND r.task_id = late.task_id AND r.status = 'PENDING'
              AND r.xmin = pg_current_xact_id()::xid
            OFFSET 0) AS r
    )
    DELETE FROM product_raw_data WHERE raw_id = ANY(ARRAY(SELECT raw_id FROM ours))
""")

# Reopen failed bodies, unless a newer body of the same call is in the catalog already: the old one would undo it.
# Bodies of one call are combined by grouping: a join's plan would depend on a guess of how many there are. At the end
# the state is compared in a form that no index has: the index on failed bodies holds those of all sellers.
_REOPEN = text("""
    WITH failed AS MATERIALIZED (
        SELECT raw_id, source, item_no, fetched_at, execution_id FROM product_raw_data
        WHERE seller_id = :seller_id AND status = 'FAILED' AND attempts < :attempts
          AND (CAST(:since AS timestamptz) IS NULL OR fetched_at >= :since)
          AND (CAST(:until AS timestamptz) IS NULL OR fetched_at < :until)
    ), bodies AS (
        SELECT raw_id, source, item_no, fetched_at, execution_id, true AS failed FROM failed
        UNION ALL
        SELECT raw_id, source, item_no, fetched_at, execution_id, false FROM product_raw_data
        WHERE seller_id = :seller_id AND status = 'PROCESSED' AND fetched_at >= (SELECT min(fetched_at) FROM failed)
    ), calls AS (
        SELECT array_agg(raw_id) AS ids, array_agg(fetched_at) AS times, array_agg(execution_id) AS executions,
               array_agg(failed) AS failures
        FROM bodies GROUP BY source, item_no HAVING bool_or(failed)
    ), chosen AS (
        SELECT r.raw_id FROM calls
        CROSS JOIN LATERAL unnest(ids, times, executions, failures) AS r(raw_id, fetched_at, execution_id, failed)
        WHERE r.failed AND NOT EXISTS (
            SELECT FROM unnest(ids, times, executions, failures) AS n(raw_id, fetched_at, execution_id, failed)
            WHERE NOT n.failed AND n.raw_id > r.raw_id AND n.fetched_at >= r.fetched_at
              AND n.execution_id IS DISTINCT FROM r.execution_id)
    )
    UPDATE product_raw_data SET status = :target, content = NULL, content_hash = NULL
    WHERE raw_id = ANY(ARRAY(SELECT raw_id FROM chosen)) AND status || '' = ANY(CAST(:sources AS text[]))
      AND status || '' = 'FAILED'
""")

_PROCESSED = text("""
    UPDATE product_raw_data SET status = :target, processed_at = now(), attempts = attempts + 1, content = NULL,
           error_code = NULL, error_text = NULL
    WHERE raw_id = ANY(CAST(:ids AS bigint[])) AND status = ANY(CAST(:sources AS text[]))
""")

# Where another body of the same call waits too, it may say the opposite: then their order decides. Each is looked up by
# its key, and so many at a time: freshly stored bodies are what the planner knows least about. One that came with its
# content said something new when it was fetched: it is not looked up.
_UNCHANGED = text("""
    WITH waiting AS MATERIALIZED (
        SELECT raw_id, item_no, content_hash FROM product_raw_data
        WHERE seller_id = :seller_id AND source = :source AND status = 'PENDING' AND content IS NULL
          AND (item_no, raw_id) > (:item_no, :raw_id)
        ORDER BY item_no, raw_id LIMIT :batch
    ), unchanged AS MATERIALIZED (
        SELECT w.raw_id FROM waiting w
        WHERE w.content_hash = (
            SELECT CASE :source WHEN 'PRODUCT_DETAIL' THEN p.detail_data_hash ELSE p.option_data_hash END
            FROM products p WHERE p.seller_id = :seller_id AND p.item_no = w.item_no LIMIT 1)
          AND (SELECT o.raw_id FROM product_raw_data o
               WHERE o.seller_id = :seller_id AND o.source = :source AND o.item_no = w.item_no
                 AND o.status = 'PENDING' AND o.raw_id <> w.raw_id LIMIT 1) IS NULL
    ), settled AS (
        UPDATE product_raw_data SET status = :target, processed_at = now(), attempts = attempts + 1, content = NULL
        WHERE raw_id = ANY(ARRAY(SELECT raw_id FROM unchanged)) AND status = ANY(CAST(:sources AS text[]))
        RETURNING 1
    )
    SELECT item_no, raw_id, (SELECT count(*) FROM settled) AS settled, (SELECT count(*) FROM waiting) AS looked_at
    FROM waiting ORDER BY item_no DESC, raw_id DESC LIMIT 1
""")

_FAILED = text("""
    UPDATE product_raw_data r SET status = :target, processed_at = now(), attempts = attempts + 1,
           error_code = f.code, error_text = f.reason
    FROM unnest(CAST(:ids AS bigint[]), CAST(:codes AS text[]), CAST(:reasons AS text[])) AS f(raw_id, code, reason)
    WHERE r.raw_id = f.raw_id AND r.status = ANY(CAST(:sources AS text[]))
""")


def add(connection: Connection, rows: Sequence[NewRaw]) -> None:
    """Store bodies by COPY, inside the transaction that ends their tasks."""
    if not rows:
        return
    cursor = connection.connection.cursor()
    with cursor.copy(_COPY) as copy:
        copy.set_types(_COPY_TYPES)
        for row in rows:
            copy.write_row(
                (
                    row.seller_id,
                    row.execution_id,
                    row.task_id,
                    row.source.value,
                    row.item_no,
                    row.page_no,
                    row.body,
                    row.fetched_at,
                    row.content,
                    row.content_hash,
                    row.status.value,
                    row.error_code,
                    row.error_text,
                    int(row.error_code is not None),
                )
            )
    cursor.close()


def take_back(connection: Connection, late: Sequence[NewRaw]) -> None:
    """Delete bodies that this transaction has just added for tasks whose lease is lost."""
    if late:
        values = {
            "sellers": [row.seller_id for row in late],
            "sources": [row.source.value for row in late],
            "items": [row.item_no for row in late],
            "tasks": [row.task_id for row in late],
        }
        connection.execute(_TAKE_BACK, values)


def lock_catalog(connection: Connection, seller_id: str) -> None:
    """Two processors of one seller wait for each other, so that the order of bodies holds; other sellers go on."""
    advisory_locks.lock(connection, PerName.CATALOG.of(seller_id))


def any_pending(connection: Connection, seller_id: str) -> bool:
    """Whether a body of the seller waits to be processed."""
    query = text("SELECT EXISTS (SELECT FROM product_raw_data WHERE seller_id = :seller_id AND status = 'PENDING')")
    return connection.execute(query, {"seller_id": seller_id}).scalar_one()


def pending(
    connection: Connection, seller_id: str, *, pages: int, products: int, beside: Iterable[int] = ()
) -> list[RawRow]:
    """The next bodies of a seller in processing order, without those of `beside`, which are being processed."""
    values = {"seller_id": seller_id, "pages": pages, "products": products, "beside": list(beside)}
    rows = connection.execute(_PENDING, values)
    return [
        RawRow(raw_id, execution_id, fetched_at, TaskType(source), *rest)
        for raw_id, execution_id, fetched_at, source, *rest in rows
    ]


def still_next(connection: Connection, seller_id: str, attempts: Mapping[int, int]) -> set[int]:
    """Which of the bodies that were read ahead, given with their attempts, are still the next ones.

    A body that was processed and reopened meanwhile is not among them: it has to be read again.
    """
    rows = connection.execute(_STILL_NEXT, {"seller_id": seller_id, "ids": list(attempts)})
    return {row.raw_id for row in rows if row.attempts == attempts[row.raw_id]}


def mark_processed(connection: Connection, raw_ids: Sequence[int]) -> None:
    """Mark bodies that are in the catalog."""
    connection.execute(_PROCESSED, {"ids": list(raw_ids)} | _PROCESS)


def settle_unchanged(connection: Connection, seller_id: str, *, batch: int = SETTLED_TOGETHER) -> int:
    """Mark unchanged bodies as processed without parsing them; returns their number."""
    values = {"seller_id": seller_id, "batch": batch} | _PROCESS
    settled = 0
    for source in (TaskType.PRODUCT_DETAIL, TaskType.PRODUCT_OPTION):
        item_no = raw_id = 0
        while True:
            after = {"source": source.value, "item_no": item_no, "raw_id": raw_id}
            row = connection.execute(_UNCHANGED, values | after).one_or_none()
            if row is None:
                break
            settled += row.settled
            if row.looked_at < batch:
                break
            item_no, raw_id = row.item_no, row.raw_id
    return settled


def mark_failed(connection: Connection, failures: Sequence[RawFailure]) -> None:
    """Mark bodies that could not be read, with the reason; they can be replayed."""
    values = {
        "ids": [failure.raw_id for failure in failures],
        "codes": [failure.code for failure in failures],
        "reasons": [failure.reason for failure in failures],
    }
    connection.execute(_FAILED, values | _FAIL)


def retry_failed(connection: Connection, seller_id: str, *, attempts: int) -> int:
    """Reopen a seller's failed bodies that have had fewer attempts than that."""
    values = {"seller_id": seller_id, "since": None, "until": None, "attempts": attempts}
    return connection.execute(_REOPEN, values | _RETRY).rowcount


def replay_failed(connection: Connection, seller_id: str, since: datetime | None, until: datetime | None) -> int:
    """Reopen a seller's failed bodies, whatever their attempts; returns their number."""
    values = {"seller_id": seller_id, "since": since, "until": until, "attempts": 2**15 - 1}
    return connection.execute(_REOPEN, values | _REPLAY).rowcount


@dataclass(frozen=True, slots=True)
class RawEntry:
    """One body in a list: its source and its status."""

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
    """Query by seller and state, as the indexes are: the newest of all are among the newest of each."""
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
    values = {"seller_id": None if seller_id is None else seller_id.value, "since": since, "limit": limit + 1}
    found = connection.execute(_NEWEST if status is None else _NEWEST_OF[status], values)
    return page((_entry(row) for row in found), limit)


def count_failed(
    connection: Connection, seller_id: SellerId | None, since: datetime | None, until: datetime | None
) -> dict[str, int]:
    """The number of failed bodies, of one seller or of each."""
    values = {"seller_id": None if seller_id is None else seller_id.value, "since": since, "until": until}
    return {row.seller_id: row.number for row in connection.execute(_COUNT_FAILED, values)}


def _entry(row: Row[tuple[object, ...]]) -> RawEntry:
    columns: dict[str, Any] = {each.name: getattr(row, each.name) for each in fields(RawEntry)}
    columns.update(source=TaskType(row.source), status=RawStatus(row.status))
    return RawEntry(**columns)


# The newest body of each call, any status; of listings the newest sweep's pages. An older one would undo a newer one.
_STORED = " UNION ALL ".join(
    f"SELECT raw_id, source, item_no, execution_id FROM product_raw_data"
    f" WHERE seller_id = :seller_id AND status = '{status.value}'"
    for status in RawStatus
)
_REOPEN_NEWEST = text(f"""
    WITH stored AS MATERIALIZED (
        SELECT raw_id, source, execution_id, max(raw_id) OVER (PARTITION BY source, item_no) AS newest
        FROM ({_STORED}) AS bodies
    ), chosen AS (
        SELECT raw_id FROM stored WHERE source <> 'MINISHOP' AND raw_id = newest
        UNION ALL
        SELECT raw_id FROM stored
        WHERE source = 'MINISHOP' AND raw_id >= (
            SELECT min(raw_id) FROM stored
            WHERE source = 'MINISHOP' AND execution_id = (
                SELECT execution_id FROM stored WHERE source = 'MINISHOP' AND raw_id = newest LIMIT 1))
    )
    UPDATE product_raw_data SET status = :target, content = NULL, content_hash = NULL
    WHERE raw_id = ANY(ARRAY(SELECT raw_id FROM chosen)) AND status = ANY(CAST(:sources AS text[]))
""")


def reopen_newest(connection: Connection, seller_id: str) -> int:
    """Reopen the newest stored bodies of a seller; returns their number."""
    return connection.execute(_REOPEN_NEWEST, {"seller_id": seller_id} | _REPLAY).rowcount


# Every body of one product has its index to itself: no statement but these states its condition.
_OF_ITEM = text(f"""
    SELECT {_COLUMNS} FROM product_raw_data r
    WHERE r.seller_id = :seller_id AND r.item_no = :item_no AND {OF_ITEM} ORDER BY r.raw_id DESC LIMIT :limit
""")
_BODY = text(f"SELECT {_COLUMNS}, left(body, :most) AS shown FROM product_raw_data WHERE raw_id = :raw_id")


@dataclass(frozen=True, slots=True)
class ShownBody:
    """A body for a person to read, from its begin on."""

    entry: RawEntry
    text: str


def of_item(connection: Connection, seller_id: str, item_no: int, limit: int) -> list[RawEntry]:
    """The newest bodies of a product's own calls that are still stored."""
    found = connection.execute(_OF_ITEM, {"seller_id": seller_id, "item_no": item_no, "limit": limit})
    return [_entry(row) for row in found]


def show_body(connection: Connection, raw_id: int, most: int) -> ShownBody:
    """One body, its first `most` characters."""
    row = connection.execute(_BODY, {"raw_id": raw_id, "most": most}).one_or_none()
    if row is None:
        raise unknown(raw_id)
    return ShownBody(_entry(row), row.shown)


def unknown(raw_id: int) -> NotFound:
    """There is no such body."""
    return NotFound(
        "NOT_FOUND_RAW",
        korean=f"저장된 응답을 찾을 수 없습니다: {raw_id}",
        english=f"There is no stored body {raw_id}: it may have gone by its age",
    )
