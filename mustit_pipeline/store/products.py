"""Products: seen on listings, filled from three sources, published as versions."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import orjson
from sqlalchemy import Connection, Row, TextClause, text

from mustit_pipeline.domain.product import Product
from mustit_pipeline.domain.states import LifeCycle
from mustit_pipeline.domain.values import ItemNo, ProductId, SellerId


@dataclass(frozen=True, slots=True)
class Contents:
    """What a product's sources said last, as canonical texts, and the state merged from it."""

    listing: str | None
    detail: str | None
    options: str | None
    data: str | None


@dataclass(frozen=True, slots=True)
class KnownProduct:
    """A product as it was read; whatever is written to its row gives that another state number."""

    product: Product
    row_state: int
    seen_by: UUID | None
    seen_at: datetime | None

    def was_seen_since(self, execution_id: UUID, moment: datetime) -> bool:
        """Whether a later page of the same sweep shows it too; the clocks of two sweeps need not agree."""
        return self.seen_by == execution_id and self.seen_at is not None and self.seen_at > moment


@dataclass(frozen=True, slots=True)
class AbsorbedProduct:
    """A product after new bodies were read: what a source said, where that is new, and the state merged from all.

    What a body's row holds as its content is named by the row's number: it need not travel.
    """

    product: Product
    listing: str | None
    detail: str | int | None
    options: str | int | None
    data: str | None
    data_hash: str | None


@dataclass(frozen=True, slots=True)
class Unpublished:
    """A product whose merged state differs from its newest version; both as texts where there is one."""

    product: Product
    data: str | None
    data_hash: str
    published_data: str | None
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class NewVersion:
    """A version on its way into the history and the outbox; without data of its own it is the product's state."""

    product: Product
    life_cycle: LifeCycle
    change_types: list[str]
    changes: list[dict[str, object]]
    data: str | None
    data_hash: str | None


@dataclass(frozen=True, slots=True)
class Sighted:
    """A product that a page shows: its newest version, and what the listing said of it last."""

    version: int
    listing_hash: str | None


_SIGHT = text("""
    INSERT INTO products AS p (seller_id, item_no, last_seen_execution_id, last_seen_at)
    SELECT :seller_id, s.item_no, :execution_id, s.seen_at
    FROM unnest(CAST(:items AS bigint[]), CAST(:moments AS timestamptz[])) AS s(item_no, seen_at) ORDER BY s.item_no
    ON CONFLICT (seller_id, item_no) DO UPDATE
        SET last_seen_execution_id = excluded.last_seen_execution_id, absent_sweeps = 0,
            -- Of a sweep's pages the one seen last, whichever is stored last.
            last_seen_at = CASE WHEN p.last_seen_execution_id = excluded.last_seen_execution_id
                                THEN greatest(p.last_seen_at, excluded.last_seen_at) ELSE excluded.last_seen_at END
    RETURNING item_no, version, minishop_data_hash
""")

_FIND = text("""
    SELECT product_id, seller_id, item_no, minishop_data_hash, detail_data_hash, option_data_hash, version,
           absent_sweeps, deleted_at, last_seen_execution_id, last_seen_at,
           CAST(CAST(xmin AS text) AS bigint) AS row_state
    FROM products
    WHERE seller_id = :seller_id AND item_no = ANY(CAST(:items AS bigint[]))
    ORDER BY item_no
""")
_LOCK = text(f"{_FIND.text} FOR NO KEY UPDATE")

_ABSORB = text("""
    UPDATE products p
    SET minishop_data_hash = a.minishop_hash, detail_data_hash = a.detail_hash, option_data_hash = a.option_hash,
        minishop_data = coalesce(a.listing, p.minishop_data), data = a.data, data_hash = a.data_hash,
        -- Copied as it is stored, compressed; a body keeps its content until it is marked as processed.
        detail_data = coalesce(a.detail, (SELECT r.content FROM product_raw_data r WHERE r.raw_id = a.detail_raw),
                               p.detail_data),
        option_data = coalesce(a.options, (SELECT r.content FROM product_raw_data r WHERE r.raw_id = a.options_raw),
                               p.option_data),
        -- Not when this transaction began: what was absorbed after a judgement must be seen to be.
        updated_at = clock_timestamp()
    FROM unnest(CAST(:ids AS uuid[]), CAST(:minishop_hashes AS text[]), CAST(:detail_hashes AS text[]),
                CAST(:option_hashes AS text[]), CAST(:listings AS text[]), CAST(:details AS text[]),
                CAST(:options AS text[]), CAST(:detail_raws AS bigint[]), CAST(:options_raws AS bigint[]),
                CAST(:datas AS text[]), CAST(:data_hashes AS text[]))
         AS a(id, minishop_hash, detail_hash, option_hash, listing, detail, options, detail_raw, options_raw, data,
              data_hash)
    WHERE p.product_id = a.id
""")


# What is ready: every planned fetch has ended and every fetched body is absorbed, so that an execution makes one
# version of a product. While a sweep goes on, what it has not shown yet may still be planned. A deleted product is back
# when it has been seen since and its detail has said that it is this seller's. What waits is looked up one by one: of
# freshly stored bodies the planner knows nothing, and joining them would go through all of them for each product.
def ready_of(seller: str) -> str:
    """The condition for products `p` with their newest version `c`, of the seller that is named so."""
    return f"""
    p.seller_id = {seller} AND p.complete AND p.data_hash IS DISTINCT FROM p.published_hash
      AND (p.deleted_at IS NULL OR p.last_seen_execution_id IS NOT NULL)
      AND (p.deleted_at IS NULL OR EXISTS (
          SELECT FROM crawling_schedule_executions e
          JOIN crawler_tasks t ON t.task_month = e.task_month AND t.execution_id = e.execution_id
          WHERE e.execution_id = p.last_seen_execution_id AND t.task_key = 'PRODUCT_DETAIL:' || p.item_no
            AND t.status = 'COMPLETED' AND NOT t.probe))
      AND NOT EXISTS (
          SELECT FROM crawling_schedule_executions e
          WHERE e.seller_id = p.seller_id AND e.status IN ('PENDING', 'RUNNING', 'PAUSED')
            AND (c.execution_id = e.execution_id
                 OR (e.sweep_status = 'PENDING' AND p.last_seen_execution_id IS DISTINCT FROM e.execution_id)
                 OR EXISTS (SELECT FROM crawler_tasks t
                            WHERE t.execution_id = e.execution_id AND t.task_month = e.task_month
                              AND t.item_no = p.item_no
                              AND t.status IN ('WAITING', 'PUBLISHED', 'IN_PROGRESS', 'RETRY'))))
      AND (SELECT r.raw_id FROM product_raw_data r
           WHERE r.seller_id = p.seller_id AND r.item_no = p.item_no AND r.status = 'PENDING' LIMIT 1) IS NULL
      AND (SELECT r.raw_id FROM product_raw_data r
           WHERE r.seller_id = {seller} AND r.source = 'MINISHOP' AND r.status = 'PENDING'
           ORDER BY r.raw_id LIMIT 1) IS NULL
"""


READY = ready_of(":seller_id")

_UNPUBLISHED = text(f"""
    SELECT p.product_id, p.seller_id, p.item_no, p.minishop_data_hash, p.detail_data_hash, p.option_data_hash,
           p.version, p.absent_sweeps, p.deleted_at, p.data_hash, p.updated_at,
           CASE WHEN p.version > 0 THEN p.data END AS data, c.product_data AS published_data
    FROM products p
    LEFT JOIN product_change_sets c
           ON c.seller_id = p.seller_id AND c.item_no = p.item_no AND c.version = p.version
    WHERE {READY}
    ORDER BY p.item_no LIMIT :limit
    FOR NO KEY UPDATE OF p
""")

_VERSIONS = text("""
    INSERT INTO product_change_sets (seller_id, item_no, version, life_cycle, change_types, changes, product_data,
                                     execution_id)
    SELECT :seller_id, v.item_no, v.version, v.life_cycle,
           ARRAY(SELECT jsonb_array_elements_text(v.types)), v.changes,
           -- The product's own copied as it is stored, compressed.
           CASE WHEN v.life_cycle <> 'DELETED' THEN coalesce(v.data, p.data) END, :execution_id
    FROM unnest(CAST(:ids AS uuid[]), CAST(:items AS bigint[]), CAST(:versions AS int[]), CAST(:life_cycles AS text[]),
                CAST(:types AS jsonb[]), CAST(:changes AS jsonb[]), CAST(:datas AS text[]))
         AS v(id, item_no, version, life_cycle, types, changes, data)
    JOIN products p ON p.product_id = v.id
""")

_PUBLISHED = text("""
    UPDATE products p
    SET version = v.version, published_hash = v.data_hash, deleted_at = v.deleted_at, absent_sweeps = 0,
        -- A deleted product has been seen by no sweep until one shows it again.
        last_seen_execution_id = CASE WHEN v.deleted_at IS NULL THEN p.last_seen_execution_id END,
        updated_at = now()
    FROM unnest(CAST(:ids AS uuid[]), CAST(:versions AS int[]), CAST(:hashes AS text[]),
                CAST(:deleted AS timestamptz[])) AS v(id, version, data_hash, deleted_at)
    WHERE p.product_id = v.id
""")


def sight(
    connection: Connection, seller_id: str, execution_id: UUID, seen_at: Mapping[int, datetime]
) -> dict[int, Sighted]:
    """A listing shows these products, each since then: make or touch their rows, and tell what each one was before."""
    values = {
        "seller_id": seller_id,
        "execution_id": execution_id,
        "items": list(seen_at),
        "moments": list(seen_at.values()),
    }
    rows = connection.execute(_SIGHT, values)
    return {row.item_no: Sighted(row.version, row.minishop_data_hash) for row in rows}


def count_seen(connection: Connection, seller_id: str, execution_id: UUID) -> int:
    """How many different products a sweep has seen."""
    query = text("SELECT count(*) FROM products WHERE seller_id = :seller AND last_seen_execution_id = :execution")
    return connection.execute(query, {"seller": seller_id, "execution": execution_id}).scalar_one()


def known_items(connection: Connection, seller_id: str, *, limit: int | None, chunk: int = 1000) -> Iterator[list[int]]:
    """The products of a seller that have not been deleted, or so many of them, a chunk at a time."""
    query = text("""
        SELECT item_no FROM products WHERE seller_id = :seller AND deleted_at IS NULL AND item_no > :after
        ORDER BY item_no LIMIT :limit
    """)
    after, left = 0, math.inf if limit is None else limit
    while left > 0:
        values = {"seller": seller_id, "after": after, "limit": min(chunk, left)}
        items = list(connection.execute(query, values).scalars())
        if not items:
            return
        yield items
        after, left = items[-1], left - len(items)


def lock(connection: Connection, seller_id: str, item_nos: Sequence[int]) -> dict[int, Product]:
    """Products, held until the transaction ends."""
    return {item_no: known.product for item_no, known in lock_known(connection, seller_id, item_nos).items()}


def lock_known(connection: Connection, seller_id: str, item_nos: Sequence[int]) -> dict[int, KnownProduct]:
    """The products to absorb bodies into, held until the transaction ends."""
    return _known(connection, _LOCK, seller_id, item_nos)


def find_known(connection: Connection, seller_id: str, item_nos: Sequence[int]) -> dict[int, KnownProduct]:
    """The products as they are, for whoever makes sure later that they still are."""
    return _known(connection, _FIND, seller_id, item_nos)


def _known(
    connection: Connection, query: TextClause, seller_id: str, item_nos: Sequence[int]
) -> dict[int, KnownProduct]:
    rows = connection.execute(query, {"seller_id": seller_id, "items": sorted(set(item_nos))})
    return {
        row.item_no: KnownProduct(_product(row), row.row_state, row.last_seen_execution_id, row.last_seen_at)
        for row in rows
    }


def contents(connection: Connection, seller_id: str, item_nos: Sequence[int]) -> dict[int, Contents]:
    """What is known of products; by far the most of a row, so nobody reads it who need not."""
    query = text("""
        SELECT item_no, minishop_data, detail_data, option_data, data FROM products
        WHERE seller_id = :seller_id AND item_no = ANY(CAST(:items AS bigint[]))
    """)
    rows = connection.execute(query, {"seller_id": seller_id, "items": sorted(set(item_nos))})
    return {row.item_no: Contents(row.minishop_data, row.detail_data, row.option_data, row.data) for row in rows}


def absorb(connection: Connection, absorbed: Sequence[AbsorbedProduct]) -> None:
    """Store what the sources now say and the state merged from it."""
    if not absorbed:
        return
    values = {
        "ids": [a.product.id.value for a in absorbed],
        "minishop_hashes": [a.product.minishop_data_hash for a in absorbed],
        "detail_hashes": [a.product.detail_data_hash for a in absorbed],
        "option_hashes": [a.product.option_data_hash for a in absorbed],
        "listings": [a.listing for a in absorbed],
        "details": [a.detail if isinstance(a.detail, str) else None for a in absorbed],
        "options": [a.options if isinstance(a.options, str) else None for a in absorbed],
        "detail_raws": [a.detail if isinstance(a.detail, int) else None for a in absorbed],
        "options_raws": [a.options if isinstance(a.options, int) else None for a in absorbed],
        "datas": [a.data for a in absorbed],
        "data_hashes": [a.data_hash for a in absorbed],
    }
    connection.execute(_ABSORB, values)


def unpublished(connection: Connection, seller_id: str, limit: int) -> list[Unpublished]:
    """Complete products whose planned fetches have ended and whose state is not the published one."""
    rows = connection.execute(_UNPUBLISHED, {"seller_id": seller_id, "limit": limit})
    return [Unpublished(_product(row), row.data, row.data_hash, row.published_data, row.updated_at) for row in rows]


def publish(connection: Connection, seller_id: str, execution_id: UUID, versions: Sequence[NewVersion]) -> None:
    """Write versions into the history and onto their products; their outbox rows belong to the same transaction."""
    if not versions:
        return
    connection.execute(
        _VERSIONS,
        {
            "seller_id": seller_id,
            "execution_id": execution_id,
            "ids": [v.product.id.value for v in versions],
            "items": [v.product.item_no.value for v in versions],
            "versions": [v.product.version for v in versions],
            "life_cycles": [v.life_cycle.value for v in versions],
            "types": [orjson.dumps(v.change_types).decode() for v in versions],
            "changes": [orjson.dumps(v.changes).decode() for v in versions],
            "datas": [v.data for v in versions],
        },
    )
    store_states(connection, [(v.product, v.data_hash) for v in versions])


def store_states(connection: Connection, states: Sequence[tuple[Product, str | None]]) -> None:
    """Write version, published hash and deletion back."""
    deleted: list[datetime | None] = [product.deleted_at for product, _ in states]
    connection.execute(
        _PUBLISHED,
        {
            "ids": [product.id.value for product, _ in states],
            "versions": [product.version for product, _ in states],
            "hashes": [data_hash for _, data_hash in states],
            "deleted": deleted,
        },
    )


def _product(row: Row[tuple[object, ...]]) -> Product:
    return Product(
        id=ProductId(row.product_id),
        seller_id=SellerId(row.seller_id),
        item_no=ItemNo(row.item_no),
        minishop_data_hash=row.minishop_data_hash,
        detail_data_hash=row.detail_data_hash,
        option_data_hash=row.option_data_hash,
        version=row.version,
        absent_sweeps=row.absent_sweeps,
        deleted_at=row.deleted_at,
    )
