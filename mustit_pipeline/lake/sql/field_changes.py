"""Every change between two points in time, field by field."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, text

from mustit_pipeline.catalog.sql.tables import OF_ALL_SELLERS

STREAMED = {"yield_per": 100}


@dataclass(frozen=True, slots=True)
class StoredChange:
    """One changed field of a version; a version without one (created, deleted, sent again) is one row without field."""

    seller_id: str
    item_no: int
    version: int
    life_cycle: str
    change_type: str | None
    field: str | None
    old_value: str | None
    new_value: str | None
    old_number: int | None
    new_number: int | None
    execution_id: UUID
    detected_at: datetime


def _number(side: str) -> str:
    return f"""CASE WHEN jsonb_typeof(one.value -> '{side}') = 'number'
                    THEN CAST(CAST(one.value ->> '{side}' AS numeric) AS bigint) END AS {side}_number"""


# The index on the time alone finds the rows: a day costs what happened in it.
_WITHIN = f"c.detected_at >= :start AND c.detected_at < :before AND c.{OF_ALL_SELLERS}"
_ALL = text(f"""
    SELECT c.seller_id, c.item_no, c.version, c.life_cycle, one.value ->> 'type' AS change_type,
           one.value ->> 'field' AS field, one.value ->> 'old' AS old_value, one.value ->> 'new' AS new_value,
           {_number("old")}, {_number("new")}, c.execution_id, c.detected_at
    FROM product_change_sets c LEFT JOIN LATERAL jsonb_array_elements(c.changes) AS one ON true
    WHERE {_WITHIN}
    -- By bytes, as Python compares texts: the reader of the files can see that no key comes twice.
    ORDER BY c.seller_id COLLATE "C", c.item_no, c.version, one.value ->> 'field' COLLATE "C"
""")
_COUNTED = text(f"""
    SELECT coalesce(sum(greatest(1, jsonb_array_length(c.changes))), 0) FROM product_change_sets c WHERE {_WITHIN}
""")


def field_changes(connection: Connection, start: datetime, before: datetime) -> Iterator[StoredChange]:
    """All changes that were detected then, by seller, item, version and field, read a few at a time."""
    for row in connection.execute(_ALL, {"start": start, "before": before}, execution_options=STREAMED):
        yield StoredChange(*row)


def count_changes(connection: Connection, start: datetime, before: datetime) -> int:
    """How many rows these are."""
    return connection.execute(_COUNTED, {"start": start, "before": before}).scalar_one()
