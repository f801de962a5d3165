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
from mustit_pipeline.foundation.paging import Page, Stretch, page
from mustit_pipeline.foundation.tables import SELLER_BY_TIME

# Change sets that one search for a type reads.
MOST_WALKED = 2000


@dataclass(frozen=True, slots=True)
class ProductHashes:
    """The hashes of what each source said last, of the merged data and of the newest version; None where not there."""

    listing: str | None
    detail: str | None
    options: str | None
    data: str | None
    published: str | None


@dataclass(frozen=True, slots=True)
class KnownProduct:
    """A product's state: what has been seen, published and delivered, and its merged data so far."""

    seller_id: str
    item_no: int
    version: int
    delivered_version: int
    hashes: ProductHashes
    absent_sweeps: int
    created_at: datetime
    last_seen_at: datetime | None
    deleted_at: datetime | None
    data: str | None

    @property
    def listing_seen(self) -> bool:
        return self.hashes.listing is not None

    @property
    def detail_seen(self) -> bool:
        return self.hashes.detail is not None

    @property
    def options_seen(self) -> bool:
        return self.hashes.options is not None

    @property
    def complete(self) -> bool:
        return self.listing_seen and self.detail_seen and self.options_seen


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """The changes of one version; `name` is the product's name in it."""

    id: UUID
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
class ChangeFilter:
    """Which change sets are asked for: `since` belongs to it, `until` does not."""

    seller_id: SellerId | None = None
    since: datetime | None = None
    until: datetime | None = None
    kind: ChangeKind | None = None


@dataclass(frozen=True, slots=True)
class ChangeKey:
    """The place of a change set in the list of all."""

    detected_at: datetime
    id: UUID


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
    SELECT seller_id, item_no, version, delivered_version, minishop_data_hash, detail_data_hash, option_data_hash,
           data_hash, published_hash, absent_sweeps, created_at, last_seen_at, deleted_at, data
    FROM products WHERE item_no = :item_no AND (CAST(:seller_id AS text) IS NULL OR seller_id = :seller_id)
    ORDER BY seller_id
""")

# A deletion has no data: its name is that of the version before.
_CHANGE_SET = """c.change_set_id, c.seller_id, c.item_no, c.version, c.life_cycle, c.change_types, c.changes,
           c.execution_id, c.detected_at, CAST(coalesce(c.product_data, (
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
      AND c.version < coalesce(CAST(:before AS int), 2147483647)
    ORDER BY c.version DESC LIMIT :limit
""")

# Each query has an index with exactly these rows in order of time. Names and changes are read only for the rows that
# are shown. No index knows the types: a search for one reads a limited number of change sets, and says how far it came.
_CHANGES = f"""
    WITH walked AS MATERIALIZED (
        SELECT c.change_set_id, c.detected_at, c.life_cycle, c.change_types FROM product_change_sets c
        WHERE {{whose}} AND c.detected_at >= coalesce(CAST(:since AS timestamptz), '-infinity')
          AND c.detected_at < coalesce(CAST(:until AS timestamptz), 'infinity')
          AND (c.detected_at, c.change_set_id) < (coalesce(CAST(:before AS timestamptz), 'infinity'),
                                                  coalesce(CAST(:before_id AS uuid), '{UUID(int=0)}'))
        ORDER BY c.detected_at DESC, c.change_set_id DESC LIMIT CAST(:walk AS bigint)
    ), found AS (
        SELECT w.change_set_id FROM walked w
        WHERE (CAST(:change_type AS text) IS NULL OR :change_type = ANY(w.change_types))
          AND (CAST(:life_cycle AS text) IS NULL OR w.life_cycle = :life_cycle)
        ORDER BY w.detected_at DESC, w.change_set_id DESC LIMIT :limit
    ), reached AS (
        SELECT w.detected_at AS reached_at, w.change_set_id AS reached_id, (SELECT count(*) FROM walked) AS walked
        FROM walked w ORDER BY w.detected_at, w.change_set_id LIMIT 1
    )
    SELECT reached.*, shown.* FROM reached LEFT JOIN (
        SELECT {_CHANGE_SET} FROM found JOIN product_change_sets c USING (change_set_id)
    ) shown ON true
    ORDER BY shown.detected_at DESC, shown.change_set_id DESC
"""
_CHANGES_OF_ALL = text(_CHANGES.format(whose=f"c.{OF_ALL_SELLERS}"))
_CHANGES_OF_ONE = text(_CHANGES.format(whose=f"{SELLER_BY_TIME} = :seller_id"))


def products(connection: Connection, item_no: ItemNo, seller_id: SellerId | None) -> list[KnownProduct]:
    """The products with this number: one, unless several sellers have listed it."""
    values = {"item_no": item_no.value, "seller_id": None if seller_id is None else seller_id.value}
    return [_known(row) for row in connection.execute(_PRODUCTS, values)]


def versions(
    connection: Connection, seller_id: str, item_no: int, *, limit: int, before: int | None = None
) -> Page[Version]:
    """A product's versions, newest first; those below `before` where it is given."""
    values = {"seller_id": seller_id, "item_no": item_no, "version": None, "before": before, "limit": limit + 1}
    return page(map(_version, connection.execute(_VERSIONS, values)), limit)


def version(connection: Connection, seller_id: str, item_no: int, number: int) -> Version | None:
    """One version of a product."""
    values = {"seller_id": seller_id, "item_no": item_no, "version": number, "before": None, "limit": 1}
    row = connection.execute(_VERSIONS, values).one_or_none()
    return None if row is None else _version(row)


def changes(connection: Connection, wanted: ChangeFilter, limit: int) -> Page[ChangeSet]:
    """What changed, newest first."""
    walk = limit + 1 if wanted.kind is None else None
    rows, _, _ = _walk(connection, wanted, behind=None, limit=limit + 1, walk=walk)
    return page(rows, limit)


def search_changes(
    connection: Connection, wanted: ChangeFilter, *, behind: ChangeKey | None, limit: int
) -> Stretch[ChangeSet, ChangeKey]:
    """The same a limited way at a time: for a rare type the rows may be few, and the search go on all the same."""
    walk = limit + 1 if wanted.kind is None else MOST_WALKED
    rows, reached, walked = _walk(connection, wanted, behind=behind, limit=limit + 1, walk=walk)
    if len(rows) > limit:
        return Stretch(rows[:limit], ChangeKey(rows[limit - 1].detected_at, rows[limit - 1].id))
    return Stretch(rows, reached if walked == walk else None)


def _walk(
    connection: Connection, wanted: ChangeFilter, *, behind: ChangeKey | None, limit: int, walk: int | None
) -> tuple[list[ChangeSet], ChangeKey | None, int]:
    """The change sets found, the last one looked at, and the number of those looked at."""
    kind = wanted.kind or ChangeKind()
    values: dict[str, object] = {
        "since": wanted.since,
        "until": wanted.until,
        "before": None if behind is None else behind.detected_at,
        "before_id": None if behind is None else behind.id,
        "change_type": None if kind.change_type is None else kind.change_type.value,
        "life_cycle": None if kind.life_cycle is None else kind.life_cycle.value,
        "limit": limit,
        "walk": walk,
    }
    if wanted.seller_id is None:
        rows = connection.execute(_CHANGES_OF_ALL, values).all()
    else:
        rows = connection.execute(_CHANGES_OF_ONE, values | {"seller_id": wanted.seller_id.value}).all()
    found = [_change_set(row) for row in rows if row.change_set_id is not None]
    if not rows:
        return found, None, 0
    return found, ChangeKey(rows[0].reached_at, rows[0].reached_id), rows[0].walked


def _known(row: Row[tuple[object, ...]]) -> KnownProduct:
    return KnownProduct(
        seller_id=row.seller_id,
        item_no=row.item_no,
        version=row.version,
        delivered_version=row.delivered_version,
        hashes=ProductHashes(
            row.minishop_data_hash, row.detail_data_hash, row.option_data_hash, row.data_hash, row.published_hash
        ),
        absent_sweeps=row.absent_sweeps,
        created_at=row.created_at,
        last_seen_at=row.last_seen_at,
        deleted_at=row.deleted_at,
        data=row.data,
    )


def _change_set(row: Row[tuple[object, ...]]) -> ChangeSet:
    return ChangeSet(
        id=row.change_set_id,
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
