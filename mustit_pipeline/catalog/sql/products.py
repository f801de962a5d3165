"""Products: seen on listings and filled from three sources."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from uuid import UUID

from msgspec import Struct
from sqlalchemy import Connection, Row, text

from mustit_pipeline.catalog.sql.raw import RawRow
from mustit_pipeline.domain.product import Product
from mustit_pipeline.domain.values import ItemNo, ProductId, SellerId
from mustit_pipeline.foundation.random_ids import time_ordered_uuids

# Rows of one seller share its id: it is checked once.
_seller_id = lru_cache(1000)(SellerId)


class Contents(Struct, frozen=True):
    """What a product's sources said last, as canonical texts, and the state merged from it."""

    listing: str | None
    detail: str | None
    options: str | None
    data: str | None


class KnownProduct(Struct, frozen=True):
    """A product as it was read; whatever is written to its row gives that another state number.

    The domain's product is made only where it is needed (`product_of`): of most the state number is enough.
    """

    row: Row[tuple[object, ...]]
    row_state: int
    seen_by: UUID | None
    seen_at: datetime | None

    def was_shown_since(self, page: RawRow) -> bool:
        """Whether a later page of the same sweep shows it too; clocks of two sweeps are not compared."""
        return self.seen_by == page.execution_id and self.seen_at is not None and self.seen_at > page.fetched_at


class AbsorbedProduct(Struct, frozen=True):
    """A product after new bodies were read: what a source said, where that is new, and the state merged from all.

    An int is the raw_id of a body whose row holds the content: the database copies it, so it is not sent.
    """

    product: Product
    listing: str | None
    detail: str | int | None
    options: str | int | None
    data: str | None
    data_hash: str | None


class Sighted(Struct, frozen=True):
    """A product that a page shows: its newest version, what the listing said of it last, and whose it is by that."""

    version: int
    listing_hash: str | None
    foreign: bool
    deleted: bool
    created_at: datetime

    @property
    def is_new(self) -> bool:
        """Whether it was never published, or has come back."""
        return self.version == 0 or self.deleted


_SIGHT = text("""
    INSERT INTO products AS p (product_id, seller_id, item_no, last_seen_execution_id, last_seen_at)
    SELECT s.new_id, :seller_id, s.item_no, :execution_id, s.seen_at
    FROM unnest(CAST(:new_ids AS uuid[]), CAST(:items AS bigint[]), CAST(:moments AS timestamptz[]))
         AS s(new_id, item_no, seen_at)
    ORDER BY s.item_no
    ON CONFLICT (seller_id, item_no) DO UPDATE
        SET last_seen_execution_id = excluded.last_seen_execution_id, absent_sweeps = 0,
            -- Of a sweep's pages the one seen last, whichever is stored last.
            last_seen_at = CASE WHEN p.last_seen_execution_id = excluded.last_seen_execution_id
                                THEN greatest(p.last_seen_at, excluded.last_seen_at) ELSE excluded.last_seen_at END
    RETURNING item_no, version, minishop_data_hash, foreign_at IS NOT NULL AS is_foreign,
              deleted_at IS NOT NULL AS is_deleted, created_at
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
_LOCK_ALL = text("""
    SELECT count(*) FROM (
        SELECT FROM products WHERE seller_id = :seller_id ORDER BY item_no FOR NO KEY UPDATE) AS locked
""")

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


# A part of a statement, after `arrived(seller_id, item_no, version)`. Products are locked in the order of a worker's
# batch, by seller and item, whatever the database's collation, so that the two cannot deadlock.
DELIVERED = """
    locked AS (
        SELECT p.product_id, a.version
        FROM arrived a JOIN products p ON p.seller_id = a.seller_id AND p.item_no = a.item_no
        ORDER BY p.seller_id COLLATE "C", p.item_no FOR NO KEY UPDATE OF p
    ), delivered AS (
        UPDATE products p SET delivered_version = l.version FROM locked l
        WHERE p.product_id = l.product_id AND p.delivered_version < l.version
    )"""


def sight(
    connection: Connection, seller_id: str, execution_id: UUID, seen_at: Mapping[int, datetime]
) -> dict[int, Sighted]:
    """Create or update the rows of products seen on a listing page; returns each product as it was known before."""
    values = {
        "seller_id": seller_id,
        "execution_id": execution_id,
        "new_ids": time_ordered_uuids(len(seen_at)),
        "items": list(seen_at),
        "moments": list(seen_at.values()),
    }
    rows = connection.execute(_SIGHT, values)
    return {
        row.item_no: Sighted(row.version, row.minishop_data_hash, row.is_foreign, row.is_deleted, row.created_at)
        for row in rows
    }


def set_foreign(connection: Connection, seller_id: str, item_nos: Sequence[int], at: datetime | None) -> None:
    """Mark products as another seller's, as their details said at that time; None removes the mark."""
    query = text("""
        UPDATE products SET foreign_at = :at, updated_at = clock_timestamp()
        WHERE seller_id = :seller_id AND item_no = ANY(CAST(:items AS bigint[]))
    """)
    connection.execute(query, {"seller_id": seller_id, "items": list(item_nos), "at": at})


def count_seen(connection: Connection, seller_id: str, execution_id: UUID) -> int:
    """The number of different products that a sweep has seen."""
    query = text("SELECT count(*) FROM products WHERE seller_id = :seller AND last_seen_execution_id = :execution")
    return connection.execute(query, {"seller": seller_id, "execution": execution_id}).scalar_one()


def known_items(connection: Connection, seller_id: str, *, limit: int | None, chunk: int = 1000) -> Iterator[list[int]]:
    """The item numbers of a seller's products that are not deleted, at most `limit`, in chunks."""
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
    """Products, locked until the transaction ends."""
    known = find_known(connection, seller_id, item_nos, lock=True)
    return {item_no: product_of(entry.row) for item_no, entry in known.items()}


def lock_all(connection: Connection, seller_id: str) -> None:
    """All products of a seller, held until the transaction ends."""
    connection.execute(_LOCK_ALL, {"seller_id": seller_id})


def find_known(
    connection: Connection, seller_id: str, item_nos: Sequence[int], *, lock: bool = False
) -> dict[int, KnownProduct]:
    """The products to absorb bodies into; without the lock the caller checks `row_state` later."""
    query = _LOCK if lock else _FIND
    rows = connection.execute(query, {"seller_id": seller_id, "items": sorted(set(item_nos))})
    return {row.item_no: KnownProduct(row, row.row_state, row.last_seen_execution_id, row.last_seen_at) for row in rows}


def contents(connection: Connection, seller_id: str, item_nos: Sequence[int]) -> dict[int, Contents]:
    """The stored contents of products: by far the largest part of a row, so read only where needed."""
    query = text("""
        SELECT item_no, minishop_data, detail_data, option_data, data FROM products
        WHERE seller_id = :seller_id AND item_no = ANY(CAST(:items AS bigint[]))
    """)
    rows = connection.execute(query, {"seller_id": seller_id, "items": sorted(set(item_nos))})
    return {row.item_no: Contents(row.minishop_data, row.detail_data, row.option_data, row.data) for row in rows}


def absorb(connection: Connection, absorbed: Sequence[AbsorbedProduct]) -> None:
    """Store the sources' new data and the merged state."""
    if not absorbed:
        return
    changed = [a.product for a in absorbed]
    values = {
        "ids": [product.id.value for product in changed],
        "minishop_hashes": [product.minishop_data_hash for product in changed],
        "detail_hashes": [product.detail_data_hash for product in changed],
        "option_hashes": [product.option_data_hash for product in changed],
        "listings": [a.listing for a in absorbed],
        "details": [a.detail if isinstance(a.detail, str) else None for a in absorbed],
        "options": [a.options if isinstance(a.options, str) else None for a in absorbed],
        "detail_raws": [a.detail if isinstance(a.detail, int) else None for a in absorbed],
        "options_raws": [a.options if isinstance(a.options, int) else None for a in absorbed],
        "datas": [a.data for a in absorbed],
        "data_hashes": [a.data_hash for a in absorbed],
    }
    connection.execute(_ABSORB, values)


def product_of(row: Row[tuple[object, ...]]) -> Product:
    """The domain's product behind a row."""
    return Product(
        id=ProductId(row.product_id),
        seller_id=_seller_id(row.seller_id),
        item_no=ItemNo(row.item_no),
        minishop_data_hash=row.minishop_data_hash,
        detail_data_hash=row.detail_data_hash,
        option_data_hash=row.option_data_hash,
        version=row.version,
        absent_sweeps=row.absent_sweeps,
        deleted_at=row.deleted_at,
    )


@dataclass(frozen=True, slots=True)
class Sightings:
    """The number of products that a sweep saw for the first time, and of live products that it did not see."""

    new: int
    absent: int


_SIGHTINGS = text("""
    SELECT count(*) FILTER (WHERE created_at >= :since AND last_seen_execution_id = :execution_id) AS new,
           count(*) FILTER (WHERE created_at < :since AND deleted_at IS NULL
                              AND last_seen_execution_id IS DISTINCT FROM :execution_id) AS absent
    FROM products WHERE seller_id = :seller_id
""")


def sightings(connection: Connection, seller_id: str, execution_id: UUID, since: datetime) -> Sightings:
    """The sightings of an execution that began at `since`; absences are final once its sweep is complete."""
    values = {"seller_id": seller_id, "execution_id": execution_id, "since": since}
    return Sightings(*connection.execute(_SIGHTINGS, values).one())


# Waiting bodies count already: they are the result of the step that fetched them. They are combined with the products
# by grouping, because the plan of a join would depend on the planner's guess of how many wait.
_FINGERPRINTS = text("""
    WITH waiting AS (
        SELECT DISTINCT ON (source, item_no) source, item_no, content_hash FROM product_raw_data
        WHERE seller_id = :seller_id AND source IN ('PRODUCT_DETAIL', 'PRODUCT_OPTION') AND status = 'PENDING'
          AND content_hash IS NOT NULL
        ORDER BY source, item_no, raw_id DESC
    ), said AS (
        SELECT item_no, deleted_at IS NULL AND absent_sweeps = 0 AND last_seen_at IS NOT NULL AS listed,
               detail_data_hash AS detail, option_data_hash AS options, NULL AS new_detail, NULL AS new_options,
               version, published_hash
        FROM products WHERE seller_id = :seller_id
        UNION ALL
        SELECT item_no, NULL, NULL, NULL, CASE source WHEN 'PRODUCT_DETAIL' THEN content_hash END,
               CASE source WHEN 'PRODUCT_OPTION' THEN content_hash END, NULL, NULL
        FROM waiting
    ), known AS (
        SELECT item_no, bool_or(listed) AS listed, coalesce(max(new_detail), max(detail)) AS detail,
               coalesce(max(new_options), max(options)) AS options, max(version) AS version,
               max(published_hash) AS published_hash
        FROM said GROUP BY item_no HAVING count(version) = 1
    )
    SELECT md5(coalesce(string_agg(CAST(item_no AS text), ',' ORDER BY item_no) FILTER (WHERE listed), '')) AS listing,
           md5(coalesce(string_agg(item_no || ':' || detail, ',' ORDER BY item_no), '')) AS details,
           md5(coalesce(string_agg(item_no || ':' || options, ',' ORDER BY item_no), '')) AS options,
           md5(coalesce(string_agg(item_no || ':' || version || ':' || coalesce(published_hash, ''), ','
                                   ORDER BY item_no) FILTER (WHERE version > 0), '')) AS versions,
           count(*) FILTER (WHERE listed) AS listed_rows, count(detail) AS detail_rows, count(options) AS option_rows,
           coalesce(sum(version), 0) AS version_rows
    FROM known
""")


@dataclass(frozen=True, slots=True)
class Fingerprints:
    """Hashes over a seller's stored hashes, equal for equal content, and the numbers of rows."""

    listing: str
    details: str
    options: str
    versions: str
    listed_rows: int
    detail_rows: int
    option_rows: int
    version_rows: int


def fingerprints(connection: Connection, seller_id: str) -> Fingerprints:
    """The fingerprints of a seller's products, with waiting bodies counted in."""
    return Fingerprints(*connection.execute(_FINGERPRINTS, {"seller_id": seller_id}).one())
