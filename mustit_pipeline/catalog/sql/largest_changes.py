"""The changes of a crawl that a person would want to see first."""

from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection, text

from mustit_pipeline.domain.states import ChangeType, LifeCycle


@dataclass(frozen=True, slots=True)
class PriceMove:
    """A price that went up or down."""

    field: str
    old: int
    new: int

    @property
    def percent(self) -> float:
        return 100.0 * (self.new - self.old) / self.old


@dataclass(frozen=True, slots=True)
class LargeChange:
    """A product that changed, and the price of it that moved most, if one did."""

    item_no: int
    version: int
    types: tuple[str, ...]
    fields: int
    move: PriceMove | None


_LARGEST = text(f"""
    SELECT c.item_no, c.version, c.change_types, jsonb_array_length(c.changes) AS fields, move.field, move.old, move.new
    FROM product_change_sets c LEFT JOIN LATERAL (
        SELECT one.value ->> 'field' AS field, CAST(one.value ->> 'old' AS bigint) AS old,
               CAST(one.value ->> 'new' AS bigint) AS new,
               abs(CAST(one.value ->> 'new' AS numeric) / CAST(one.value ->> 'old' AS numeric) - 1) AS share
        FROM jsonb_array_elements(c.changes) AS one
        WHERE one.value ->> 'type' = '{ChangeType.PRICE.value}' AND one.value ->> 'field' <> 'discountRate'
          AND jsonb_typeof(one.value -> 'old') = 'number' AND jsonb_typeof(one.value -> 'new') = 'number'
          AND one.value -> 'old' <> '0'
        ORDER BY share DESC, field LIMIT 1
    ) move ON '{ChangeType.PRICE.value}' = ANY(c.change_types)
    WHERE c.execution_id = :execution_id AND c.life_cycle = '{LifeCycle.UPDATED.value}'
    ORDER BY move.share DESC NULLS LAST, fields DESC, c.item_no, c.version
    LIMIT :limit
""")


def largest_changes(connection: Connection, execution_id: UUID, limit: int) -> list[LargeChange]:
    """What an execution saw change most: prices in proportion to what they were, then who changed in most fields."""
    return [
        LargeChange(
            row.item_no,
            row.version,
            tuple(row.change_types),
            row.fields,
            None if row.field is None else PriceMove(row.field, row.old, row.new),
        )
        for row in connection.execute(_LARGEST, {"execution_id": execution_id, "limit": limit})
    ]
