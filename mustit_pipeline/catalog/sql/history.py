"""The history of products: every version with its whole state, and what changed when."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, text

from mustit_pipeline.catalog.sql.tables import OF_ALL_SELLERS
from mustit_pipeline.domain.filters import ChangeKind
from mustit_pipeline.domain.states import ChangeType, LifeCycle, OutboxStatus
from mustit_pipeline.domain.values import ItemNo, SellerId
from mustit_pipeline.foundation.paging import Page, page
from mustit_pipeline.foundation.tables import BY_TIME


@dataclass(frozen=True, slots=True)
class KnownProduct:
    """A product's state: what has been seen, published and delivered, and its merged data so far."""

    seller_id: str
    item_no: int
    version: int
    delivered_version: int
    listing_seen: bool
    detail_seen: bool
    options_seen: bool
    absent_sweeps: int
    created_at: datetime
    last_seen_at: datetime | None
    deleted_at: datetime | None
    data: str | None


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """The changes of one version; `name` is the product's name in it."""

    seller_id: str
    item_no: int
    version: int
    life_cycle: LifeCycle
    change_types: list[str]
    changes: list[dict[str, Any]]
    execution_id: UUID
    detected_at: datetime
    name: str | None


@dataclass(frozen=True, slots=True)
class Delivery:
    """The delivery state of a version's event."""

    outbox_id: UUID | None
    status: OutboxStatus | None
    superseded: bool
    completed_at: datetime | None


@dataclass(frozen=True, slots=True)
class Version:
    """A version in its product's history."""

    change_set: ChangeSet
    delivery: Delivery
    data: str | None


_PRODUCTS = text("""
    SELECT seller_id, item_no, version, delivered_version, minishop_data_hash IS NOT NULL AS listing_seen,
           detail_data_hash IS NOT NULL AS detail_seen, option_data_hash IS NOT NULL AS options_seen,
           absent_sweeps, created_at, last_seen_at, deleted_at, data
    FROM products WHERE item_no = :item_no AND (CAST(:seller_id AS text) IS NULL OR seller_id = :seller_id)
    ORDER BY seller_id
""")

# A deletion has no data: its name is that of the version before.
_CHANGE_SET = """c.seller_id, c.item_no, c.version, c.life_cycle, c.change_types, c.changes, c.execution_id,
           c.detected_at, CAST(coalesce(c.product_data, (
               SELECT b.product_data FROM product_change_sets b
               WHERE b.seller_id = c.seller_id AND b.item_no = c.item_no AND b.version < c.version
                 AND b.product_data IS NOT NULL
               ORDER BY b.version DESC LIMIT 1)) AS jsonb) ->> 'name' AS name"""

_VERSIONS = text(f"""
    SELECT {_CHANGE_SET}, c.product_data AS data, o.outbox_id, o.status AS outbox_status,
           o.superseded_by IS NOT NULL AS superseded, o.completed_at
    FROM product_change_sets c
    LEFT JOIN product_outbox o ON o.seller_id = c.seller_id AND o.item_no = c.item_no AND o.version = c.version
    WHERE c.seller_id = :seller_id AND c.item_no = :item_no
      AND (CAST(:version AS int) IS NULL OR c.version = :version)
    ORDER BY c.version DESC LIMIT :limit
""")

# Each query has an index with exactly these rows in order of time. Names and changes are read only for the rows that
# are shown.
_CHANGES = f"""
    WITH found AS (
        SELECT c.change_set_id FROM product_change_sets c
        WHERE {{whose}} AND c.detected_at >= coalesce(CAST(:since AS timestamptz), '-infinity')
          AND (CAST(:change_type AS text) IS NULL OR :change_type = ANY(c.change_types))
          AND (CAST(:life_cycle AS text) IS NULL OR c.life_cycle = :life_cycle)
        ORDER BY c.detected_at DESC LIMIT :limit
    )
    SELECT {_CHANGE_SET} FROM found JOIN product_change_sets c USING (change_set_id)
    ORDER BY c.detected_at DESC, c.seller_id, c.item_no
"""
_CHANGES_OF_ALL = text(_CHANGES.format(whose=f"c.{OF_ALL_SELLERS}"))
_CHANGES_OF_ONE = text(_CHANGES.format(whose=f"c.seller_id = :seller_id AND c.{BY_TIME}"))


def products(connection: Connection, item_no: ItemNo, seller_id: SellerId | None) -> list[KnownProduct]:
    """The products with this number: one, unless several sellers have listed it."""
    values = {"item_no": item_no.value, "seller_id": None if seller_id is None else seller_id.value}
    return [_known(row) for row in connection.execute(_PRODUCTS, values)]


def versions(connection: Connection, seller_id: str, item_no: int, *, limit: int) -> Page[Version]:
    """A product's versions, newest first."""
    values = {"seller_id": seller_id, "item_no": item_no, "version": None, "limit": limit + 1}
    return page(map(_version, connection.execute(_VERSIONS, values)), limit)


def version(connection: Connection, seller_id: str, item_no: int, number: int) -> Version | None:
    """One version of a product."""
    values = {"seller_id": seller_id, "item_no": item_no, "version": number, "limit": 1}
    row = connection.execute(_VERSIONS, values).one_or_none()
    return None if row is None else _version(row)


def changes(
    connection: Connection,
    *,
    seller_id: SellerId | None,
    since: datetime | None,
    kind: ChangeKind | None,
    limit: int,
) -> Page[ChangeSet]:
    """What changed, newest first."""
    wanted = kind or ChangeKind()
    values: dict[str, object] = {
        "since": since,
        "change_type": None if wanted.change_type is None else wanted.change_type.value,
        "life_cycle": None if wanted.life_cycle is None else wanted.life_cycle.value,
        "limit": limit + 1,
    }
    if seller_id is None:
        rows = connection.execute(_CHANGES_OF_ALL, values)
    else:
        rows = connection.execute(_CHANGES_OF_ONE, values | {"seller_id": seller_id.value})
    return page(map(_change_set, rows), limit)


def _known(row: Row[tuple[object, ...]]) -> KnownProduct:
    return KnownProduct(
        seller_id=row.seller_id,
        item_no=row.item_no,
        version=row.version,
        delivered_version=row.delivered_version,
        listing_seen=row.listing_seen,
        detail_seen=row.detail_seen,
        options_seen=row.options_seen,
        absent_sweeps=row.absent_sweeps,
        created_at=row.created_at,
        last_seen_at=row.last_seen_at,
        deleted_at=row.deleted_at,
        data=row.data,
    )


def _change_set(row: Row[tuple[object, ...]]) -> ChangeSet:
    return ChangeSet(
        seller_id=row.seller_id,
        item_no=row.item_no,
        version=row.version,
        life_cycle=LifeCycle(row.life_cycle),
        change_types=list(row.change_types),
        changes=list(row.changes),
        execution_id=row.execution_id,
        detected_at=row.detected_at,
        name=row.name,
    )


def _version(row: Row[tuple[object, ...]]) -> Version:
    status = None if row.outbox_status is None else OutboxStatus(row.outbox_status)
    return Version(_change_set(row), Delivery(row.outbox_id, status, bool(row.superseded), row.completed_at), row.data)


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
    """The largest changes of an execution: by relative price change, then by the number of changed fields."""
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
