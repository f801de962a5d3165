"""Lists of products: all of them, a seller's, and those found by a number or a name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson
from sqlalchemy import Connection, Row, text

from mustit_pipeline.domain.errors import ValidationFailed
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.paging import Stretch
from mustit_pipeline.sellers.sql import sellers

# Products that one search for a name reads; and products that are counted, where more are only estimated.
MOST_WALKED, MOST_COUNTED = 2000, 1000
LARGEST_ITEM_NO = 2**63 - 1


@dataclass(frozen=True, slots=True)
class ListedProduct:
    """A product in a list; name and price are those of the last listing that showed it."""

    seller_id: str
    item_no: int
    name: str | None
    price: int | None
    version: int
    delivered_version: int
    complete: bool
    first_seen_at: datetime
    last_seen_at: datetime | None
    deleted_at: datetime | None


@dataclass(frozen=True, slots=True)
class ProductKey:
    """The place of a product in a list."""

    seller_id: str
    item_no: int


@dataclass(frozen=True, slots=True)
class Total:
    """How many products there are."""

    number: int
    estimated: bool


_BEFORE_ALL = ProductKey("", 0)

_SHOWN = """p.seller_id, p.item_no, p.minishop_data, p.version, p.delivered_version, p.complete, p.created_at,
           p.last_seen_at, p.deleted_at"""

_ALL = text(f"""
    SELECT {_SHOWN} FROM products p WHERE (p.seller_id, p.item_no) > (:seller_id, :item_no)
    ORDER BY p.seller_id, p.item_no LIMIT :limit
""")
_OF_SELLER = text(f"""
    SELECT {_SHOWN} FROM products p WHERE p.seller_id = :seller_id AND p.item_no > :item_no
    ORDER BY p.item_no LIMIT :limit
""")

_NUMBERED = text(f"""
    SELECT * FROM (SELECT {_SHOWN} FROM products p WHERE p.item_no = :number OFFSET 0) AS p
    WHERE p.seller_id > :seller_id ORDER BY p.seller_id LIMIT :limit
""")
# The numbers that begin with the same digits are one range for each length that a number can have.
_NUMBERED_OF_SELLER = text(f"""
    SELECT p.* FROM unnest(CAST(:lowest AS bigint[]), CAST(:highest AS bigint[])) AS range(low, high)
    CROSS JOIN LATERAL (
        SELECT {_SHOWN} FROM products p
        WHERE p.seller_id = :seller_id AND p.item_no BETWEEN range.low AND range.high AND p.item_no > :item_no
        ORDER BY p.item_no LIMIT :limit
    ) p ORDER BY p.item_no LIMIT :limit
""")

# No index has the names: a search reads a limited number of products, and says how far it came.
_NAMED = text(f"""
    WITH walked AS MATERIALIZED (
        SELECT {_SHOWN} FROM products p WHERE p.seller_id = :seller_id AND p.item_no > :item_no
        ORDER BY p.item_no LIMIT :walk
    ), reached AS (
        SELECT count(*) AS walked, max(item_no) AS reached FROM walked
    )
    SELECT reached.*, found.* FROM reached LEFT JOIN (
        SELECT * FROM walked w WHERE CAST(w.minishop_data AS jsonb) ->> 'name' ILIKE :pattern
        ORDER BY w.item_no LIMIT :limit
    ) found ON true
    ORDER BY found.item_no
""")

_COUNT = text("""
    SELECT count(*) FROM (SELECT FROM products p WHERE p.seller_id = :seller_id ORDER BY p.item_no LIMIT :most) AS first
""")
_COUNT_ALL = text("""
    SELECT count(*) AS counted, (SELECT reltuples FROM pg_class WHERE oid = CAST('products' AS regclass)) AS believed
    FROM (SELECT FROM products p ORDER BY p.seller_id, p.item_no LIMIT :most) AS first
""")


def find(
    connection: Connection,
    *,
    seller_id: SellerId | None,
    words: str | None,
    behind: ProductKey | None,
    limit: int,
) -> Stretch[ListedProduct, ProductKey]:
    """Products in order of their numbers, without a seller by seller.

    `words` are a number, or, within a seller, its first digits or a part of the name as the listing shows it. A search
    for a name goes a limited way at a time: its rows may be few, and the search go on all the same.
    """
    start = behind or _BEFORE_ALL
    values: dict[str, object] = {"seller_id": start.seller_id, "item_no": start.item_no, "limit": limit + 1}
    if seller_id is not None:
        values["seller_id"] = seller_id.value
    if not words:
        rows = connection.execute(_ALL if seller_id is None else _OF_SELLER, values).all()
    elif words.isascii() and words.isdecimal():
        rows = _numbered(connection, values, words, everywhere=seller_id is None)
    elif seller_id is None:
        raise ValidationFailed(
            "VALIDATION_PRODUCT_SEARCH",
            korean="이름으로 찾으려면 셀러를 지정하세요. 상품 번호는 모든 셀러에서 찾습니다",
            english="A name is looked for within one seller: name the seller; a number is looked for everywhere",
        )
    else:
        return _named(connection, values, words, limit)
    return _stretch(rows, limit, None)


def count(connection: Connection, seller_id: SellerId | None) -> Total:
    """How many products a seller has, or all have; many are an estimate."""
    if seller_id is None:
        row = connection.execute(_COUNT_ALL, {"most": MOST_COUNTED + 1}).one()
        counted, believed = row.counted, int(row.believed)
    else:
        counted = connection.execute(_COUNT, {"seller_id": seller_id.value, "most": MOST_COUNTED + 1}).scalar_one()
        believed = sellers.get(connection, seller_id)[0].total_product_count
    return Total(counted, False) if counted <= MOST_COUNTED else Total(max(counted, believed), True)


def _numbered(
    connection: Connection, values: Mapping[str, object], digits: str, *, everywhere: bool
) -> Sequence[Row[Any]]:
    ranges = _ranges(digits)
    if not ranges:
        return []
    if everywhere:
        return connection.execute(_NUMBERED, {**values, "number": ranges[0][0]}).all()
    asked = {**values, "lowest": [low for low, _ in ranges], "highest": [high for _, high in ranges]}
    return connection.execute(_NUMBERED_OF_SELLER, asked).all()


def _named(
    connection: Connection, values: Mapping[str, object], words: str, limit: int
) -> Stretch[ListedProduct, ProductKey]:
    pattern = words.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    asked = {**values, "pattern": f"%{pattern}%", "walk": MOST_WALKED}
    rows = connection.execute(_NAMED, asked).all()
    reached = ProductKey(str(values["seller_id"]), rows[0].reached) if rows[0].walked == MOST_WALKED else None
    return _stretch([row for row in rows if row.item_no is not None], limit, reached)


def _stretch(rows: Sequence[Row[Any]], limit: int, reached: ProductKey | None) -> Stretch[ListedProduct, ProductKey]:
    found = [_listed(row) for row in rows[:limit]]
    if len(rows) > limit:
        return Stretch(found, ProductKey(found[-1].seller_id, found[-1].item_no))
    return Stretch(found, reached)


def _ranges(digits: str) -> list[tuple[int, int]]:
    """The numbers that begin with these digits, from the shortest on; none begins with 0."""
    if digits.startswith("0"):
        return []
    ranges: list[tuple[int, int]] = []
    low, high = int(digits[:20]), int(digits[:20])
    while low <= LARGEST_ITEM_NO:
        ranges.append((low, min(high, LARGEST_ITEM_NO)))
        low, high = 10 * low, 10 * high + 9
    return ranges


def _listed(row: Row[Any]) -> ListedProduct:
    shown: Mapping[str, Any] = {} if row.minishop_data is None else orjson.loads(row.minishop_data)
    return ListedProduct(
        seller_id=row.seller_id,
        item_no=row.item_no,
        name=shown.get("name"),
        price=shown.get("price"),
        version=row.version,
        delivered_version=row.delivered_version,
        complete=row.complete,
        first_seen_at=row.created_at,
        last_seen_at=row.last_seen_at,
        deleted_at=row.deleted_at,
    )
