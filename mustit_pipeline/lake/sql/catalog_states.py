"""The published state of every product at a point in time."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text

from mustit_pipeline.domain.states import LifeCycle

# Rows that a fetch brings: a product is some kilobytes, and one can be megabytes.
STREAMED = {"yield_per": 100}


@dataclass(frozen=True, slots=True)
class ProductState:
    """A product as its newest version before that time has it."""

    seller_id: str
    item_no: int
    version: int
    detected_at: datetime
    data: str


# One index look-up per product: the unique index on (seller, item, version), walked from the newest version down to the
# first one of that time. The walk in the index's own order needs no sort, and sellers come one after the other.
_STATES = f"""
    FROM products p
    CROSS JOIN LATERAL (
        SELECT c.version, c.life_cycle, c.detected_at, c.product_data FROM product_change_sets c
        WHERE c.seller_id = p.seller_id AND c.item_no = p.item_no AND c.detected_at < :before
        ORDER BY c.version DESC LIMIT 1
    ) AS v
    WHERE v.life_cycle <> '{LifeCycle.DELETED.value}'
"""
_ALL = text(f"""
    SELECT p.seller_id, p.item_no, v.version, v.detected_at, v.product_data {_STATES} ORDER BY p.seller_id, p.item_no
""")
_COUNTED = text(f"SELECT count(*) {_STATES}")


def product_states(connection: Connection, before: datetime) -> Iterator[ProductState]:
    """Every product that was published and not deleted, by seller and item, read a few at a time."""
    for row in connection.execute(_ALL, {"before": before}, execution_options=STREAMED):
        yield ProductState(row.seller_id, row.item_no, row.version, row.detected_at, row.product_data)


def count_states(connection: Connection, before: datetime) -> int:
    """How many products there are then."""
    return connection.execute(_COUNTED, {"before": before}).scalar_one()
