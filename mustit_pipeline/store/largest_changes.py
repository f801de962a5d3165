"""The changes of a crawl that a person would want to see first."""

from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection, text

from mustit_pipeline.domain.states import ChangeType, LifeCycle


@dataclass(frozen=True, slots=True)
class PriceMove:
    """A product whose price went up or down."""

    item_no: int
    version: int
    field: str
    old: int
    new: int

    @property
    def percent(self) -> float:
        return 100.0 * (self.new - self.old) / self.old


_MOVES = text(f"""
    SELECT c.item_no, c.version, one.value ->> 'field' AS field, CAST(one.value ->> 'old' AS bigint) AS old,
           CAST(one.value ->> 'new' AS bigint) AS new
    FROM product_change_sets c CROSS JOIN LATERAL jsonb_array_elements(c.changes) AS one
    WHERE c.execution_id = :execution_id AND c.life_cycle = '{LifeCycle.UPDATED.value}'
      AND '{ChangeType.PRICE.value}' = ANY(c.change_types) AND one.value ->> 'type' = '{ChangeType.PRICE.value}'
      AND one.value ->> 'field' <> 'discountRate'
      AND jsonb_typeof(one.value -> 'old') = 'number' AND jsonb_typeof(one.value -> 'new') = 'number'
      AND one.value -> 'old' <> '0'
    ORDER BY abs(CAST(one.value ->> 'new' AS numeric) / CAST(one.value ->> 'old' AS numeric) - 1) DESC,
             c.item_no, one.value ->> 'field'
    LIMIT :limit
""")


def price_moves(connection: Connection, execution_id: UUID, limit: int) -> list[PriceMove]:
    """The largest moves of prices that an execution saw, in proportion to what they were."""
    rows = connection.execute(_MOVES, {"execution_id": execution_id, "limit": limit})
    return [PriceMove(row.item_no, row.version, row.field, row.old, row.new) for row in rows]
