"""What we believe that the product server has, and states that are to be sent to it once more."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection, Row, text

from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.outbox.sql.outbox_states import COMPLETED, UNSENT

# The product server's answer to a version that is not newer than what it has.
STALE = 409


@dataclass(frozen=True, slots=True)
class Belief:
    """A product of which something was delivered; `data` is None where that was its deletion.

    Also one of which all was refused as stale: of that nothing is delivered, and its newest state should be there.
    """

    seller_id: str
    item_no: int
    version: int
    delivered_version: int
    # Whether a newer word about it is on its way, so that nothing can be said yet.
    under_way: bool
    data: str | None


@dataclass(frozen=True, slots=True)
class Correction:
    """A belief that has turned out wrong, and the version that the product server really knows; 0 for none.

    A server that knows a version may nevertheless hold nothing of the product.
    """

    belief: Belief
    reported_version: int
    missing: bool = False


_UNDER_WAY = f"""(SELECT o.outbox_id FROM product_outbox o WHERE o.seller_id = p.seller_id AND o.item_no = p.item_no
                  AND o.status IN ({UNSENT}) LIMIT 1) IS NOT NULL"""

_TOLD = f"""(p.delivered_version > 0
             OR (SELECT o.outbox_id FROM product_outbox o WHERE o.seller_id = p.seller_id AND o.item_no = p.item_no
                 AND o.version = p.version AND o.status = {COMPLETED} AND o.last_status = {STALE}
                 LIMIT 1) IS NOT NULL)"""

_BELIEFS = f"""
    SELECT p.seller_id, p.item_no, p.version, p.delivered_version, {_UNDER_WAY} AS under_way, d.product_data
    FROM products p
    CROSS JOIN LATERAL (
        SELECT v.product_data FROM product_change_sets v
        WHERE v.seller_id = p.seller_id AND v.item_no = p.item_no
          AND v.version = coalesce(nullif(p.delivered_version, 0), p.version) LIMIT 1) AS d
    WHERE {_TOLD} AND {{which}}
    ORDER BY p.seller_id, p.item_no
"""
_OF_ALL = text(_BELIEFS.format(which="(p.seller_id, p.item_no) > (:seller_id, :item_no)") + "LIMIT :limit")
_OF_SELLER = text(_BELIEFS.format(which="p.seller_id = :seller_id AND p.item_no > :item_no") + "LIMIT :limit")
_OF_ITEMS = text(_BELIEFS.format(which="p.seller_id = :seller_id AND p.item_no = ANY(CAST(:items AS bigint[]))"))

_COUNT = text(f"SELECT count(*) FROM products p WHERE {_TOLD}")
_COUNT_OF_SELLER = text(f"SELECT count(*) FROM products p WHERE {_TOLD} AND p.seller_id = :seller_id")


def count(connection: Connection, seller_id: SellerId | None) -> int:
    """How many products there are to compare."""
    if seller_id is None:
        return connection.execute(_COUNT).scalar_one()
    return connection.execute(_COUNT_OF_SELLER, {"seller_id": seller_id.value}).scalar_one()


def beliefs(connection: Connection, seller_id: SellerId | None, after: Belief | None, limit: int) -> list[Belief]:
    """The next products in the order of their sellers and numbers."""
    item_no = 0 if after is None else after.item_no
    if seller_id is not None:
        found = connection.execute(_OF_SELLER, {"seller_id": seller_id.value, "item_no": item_no, "limit": limit})
    else:
        seller = "" if after is None else after.seller_id
        found = connection.execute(_OF_ALL, {"seller_id": seller, "item_no": item_no, "limit": limit})
    return [_belief(row) for row in found]


def unchanged(connection: Connection, seller_id: str, doubted: Sequence[Belief]) -> set[int]:
    """Which of one seller's products are still believed to be so, with nothing under way."""
    items = [belief.item_no for belief in doubted]
    now = {row.item_no: _belief(row) for row in connection.execute(_OF_ITEMS, {"seller_id": seller_id, "items": items})}
    return {belief.item_no for belief in doubted if now.get(belief.item_no) == replace(belief, under_way=False)}


def _belief(row: Row[tuple[object, ...]]) -> Belief:
    return Belief(row.seller_id, row.item_no, row.version, row.delivered_version, row.under_way, row.product_data)
