"""Publication: which products are ready, and their new versions."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import orjson
from msgspec import Struct
from sqlalchemy import Connection, text

from mustit_pipeline.catalog.sql.products import product_of
from mustit_pipeline.domain.product import Product
from mustit_pipeline.domain.states import LifeCycle
from mustit_pipeline.domain.values import ExecutionId, SellerId
from mustit_pipeline.foundation.random_ids import time_ordered_uuids


class Unpublished(Struct, frozen=True):
    """A product whose merged state differs from its newest version; both states as texts where a version exists."""

    product: Product
    data: str | None
    data_hash: str
    published_data: str | None
    updated_at: datetime


class NewVersion(Struct, frozen=True):
    """A version to be written to the history and the outbox; without `data` the product's merged state is used."""

    product: Product
    life_cycle: LifeCycle
    change_types: list[str]
    changes: list[dict[str, object]]
    data: str | None
    data_hash: str | None

    @property
    def kinds(self) -> list[str]:
        """What it is counted as: the types of its changes, or that it came, went or came back."""
        return sorted(set(self.change_types)) if self.life_cycle is LifeCycle.UPDATED else [self.life_cycle.value]


@dataclass(frozen=True, slots=True)
class SentAgain:
    """A product with its new version, the version whose state it repeats, and the delivered version."""

    product: Product
    repeats: int
    delivered: int

    @property
    def item_no(self) -> int:
        return self.product.item_no.value

    @property
    def version(self) -> int:
        return self.product.version


# For the execution e and the product p: by the keys of its calls it is one lookup.
OPEN_TASK_OF_PRODUCT = """(
    SELECT t.task_id FROM crawler_tasks t
    WHERE t.execution_id = e.execution_id AND t.task_month = e.task_month
      AND t.task_key = ANY(ARRAY['PRODUCT_DETAIL:' || p.item_no, 'PRODUCT_OPTION:' || p.item_no])
      AND t.status IN ('WAITING', 'PUBLISHED', 'IN_PROGRESS', 'RETRY') LIMIT 1)"""


# A product is ready when all its planned fetches have ended and all its bodies are absorbed, so that an execution makes
# one version of a product. During a sweep, products that it has not seen yet may still get fetches. A deleted product
# is ready when it has been seen again and its detail belongs to this seller. Waiting rows are looked up one by one, by
# their whole key: the planner has no statistics of fresh rows, and a join would read all of them for each product.
def ready_of(seller: str) -> str:
    """The condition for products `p` with their newest version `c`; `seller` is an SQL expression."""
    return f"""
    p.seller_id = {seller} AND p.complete AND p.data_hash IS DISTINCT FROM p.published_hash
      AND p.foreign_at IS NULL
      AND (p.deleted_at IS NULL OR p.absent_sweeps = 0)
      AND (p.deleted_at IS NULL OR (
          SELECT t.task_id FROM crawling_schedule_executions e
          JOIN crawler_tasks t ON t.task_month = e.task_month AND t.execution_id = e.execution_id
          WHERE e.execution_id = p.last_seen_execution_id AND t.task_key = 'PRODUCT_DETAIL:' || p.item_no
            AND t.status = 'COMPLETED' AND NOT t.probe LIMIT 1) IS NOT NULL)
      AND (SELECT e.execution_id FROM crawling_schedule_executions e
           WHERE e.seller_id = {seller} AND e.status IN ('PENDING', 'RUNNING', 'PAUSED')
             AND (c.execution_id = e.execution_id
                  OR (e.sweep_status = 'PENDING' AND p.last_seen_execution_id IS DISTINCT FROM e.execution_id)
                  OR {OPEN_TASK_OF_PRODUCT} IS NOT NULL)
           LIMIT 1) IS NULL
      AND (SELECT r.raw_id FROM product_raw_data r
           WHERE r.seller_id = {seller} AND r.source IN ('PRODUCT_DETAIL', 'PRODUCT_OPTION') AND r.item_no = p.item_no
             AND r.status = 'PENDING' LIMIT 1) IS NULL
      AND (SELECT r.raw_id FROM product_raw_data r
           WHERE r.seller_id = {seller} AND r.source = 'MINISHOP' AND r.status = 'PENDING' LIMIT 1) IS NULL
"""


READY = ready_of(":seller_id")
# The newest version of a product p.
NEWEST_VERSION = """LEFT JOIN LATERAL (
        SELECT v.execution_id, v.product_data FROM product_change_sets v
        WHERE v.seller_id = p.seller_id AND v.item_no = p.item_no AND v.version = p.version LIMIT 1) AS c ON true"""

_UNPUBLISHED = text(f"""
    SELECT p.product_id, p.seller_id, p.item_no, p.minishop_data_hash, p.detail_data_hash, p.option_data_hash,
           p.version, p.absent_sweeps, p.deleted_at, p.data_hash, p.updated_at,
           CASE WHEN p.version > 0 THEN p.data END AS data, c.product_data AS published_data
    FROM products p
    {NEWEST_VERSION}
    WHERE {READY}
    ORDER BY p.item_no LIMIT :limit
    FOR NO KEY UPDATE OF p
""")

_VERSIONS = text("""
    INSERT INTO product_change_sets (change_set_id, seller_id, item_no, version, life_cycle, change_types, changes,
                                     product_data, execution_id)
    SELECT v.change_set_id, :seller_id, v.item_no, v.version, v.life_cycle,
           ARRAY(SELECT jsonb_array_elements_text(v.types)), v.changes,
           -- The product's own copied as it is stored, compressed.
           CASE WHEN v.life_cycle <> 'DELETED' THEN coalesce(v.data, p.data) END, :execution_id
    FROM unnest(CAST(:change_set_ids AS uuid[]), CAST(:ids AS uuid[]), CAST(:items AS bigint[]),
                CAST(:versions AS int[]), CAST(:life_cycles AS text[]), CAST(:types AS jsonb[]),
                CAST(:changes AS jsonb[]), CAST(:datas AS text[]))
         AS v(change_set_id, id, item_no, version, life_cycle, types, changes, data)
    JOIN products p ON p.product_id = v.id
""")

_PUBLISHED = text("""
    UPDATE products p
    SET version = v.version, published_hash = v.data_hash, deleted_at = v.deleted_at,
        -- A deleted product has been seen by no sweep until one shows it again.
        absent_sweeps = CASE WHEN v.deleted_at IS NULL THEN 0 ELSE greatest(p.absent_sweeps, 1) END,
        last_seen_execution_id = CASE WHEN v.deleted_at IS NULL THEN p.last_seen_execution_id END,
        updated_at = now()
    FROM unnest(CAST(:ids AS uuid[]), CAST(:versions AS int[]), CAST(:hashes AS text[]),
                CAST(:deleted AS timestamptz[])) AS v(id, version, data_hash, deleted_at)
    WHERE p.product_id = v.id
""")

# The state of the newest version is sent, delivered or not: a failed event is superseded by this one.
_REPEATED_VERSIONS = text("""
    INSERT INTO product_change_sets (seller_id, item_no, version, life_cycle, change_types, changes, product_data,
                                     execution_id)
    SELECT c.seller_id, c.item_no, r.version, CASE WHEN c.life_cycle = :deleted THEN c.life_cycle ELSE :updated END,
           '{}', '[]', c.product_data, c.execution_id
    FROM unnest(CAST(:items AS bigint[]), CAST(:newest AS int[]), CAST(:versions AS int[]))
         AS r(item_no, newest, version)
    CROSS JOIN LATERAL (
        SELECT * FROM product_change_sets v
        WHERE v.seller_id = :seller_id AND v.item_no = r.item_no AND v.version = r.newest LIMIT 1) AS c
    RETURNING item_no, life_cycle
""")

_REPEATED_PRODUCTS = text("""
    UPDATE products p SET version = r.version, delivered_version = r.delivered, updated_at = now()
    FROM (SELECT r.version, r.delivered, (SELECT o.product_id FROM products o
                                          WHERE o.seller_id = :seller_id AND o.item_no = r.item_no) AS product_id
          FROM unnest(CAST(:items AS bigint[]), CAST(:versions AS int[]), CAST(:delivered AS int[]))
               AS r(item_no, version, delivered) OFFSET 0) AS r
    WHERE p.product_id = r.product_id
""")


# The open one, else the newest; a seller that is no longer crawled may have neither.
_EXECUTION = text("""
    SELECT e.execution_id FROM (
        SELECT execution_id, status, created_at FROM crawling_schedule_executions WHERE seller_id = :seller_id OFFSET 0
    ) AS e
    ORDER BY e.status IN ('PENDING', 'RUNNING', 'PAUSED') DESC, e.created_at DESC LIMIT 1
""")


def publishing_execution(connection: Connection, seller_id: SellerId) -> ExecutionId | None:
    """The execution that a version published now belongs to."""
    found = connection.execute(_EXECUTION, {"seller_id": seller_id.value}).scalar_one_or_none()
    return None if found is None else ExecutionId(found)


def unpublished(connection: Connection, seller_id: str, limit: int) -> list[Unpublished]:
    """Complete products whose planned fetches have ended and whose state is not the published one."""
    rows = connection.execute(_UNPUBLISHED, {"seller_id": seller_id, "limit": limit})
    return [Unpublished(product_of(row), row.data, row.data_hash, row.published_data, row.updated_at) for row in rows]


def publish(connection: Connection, seller_id: str, execution_id: UUID, versions: Sequence[NewVersion]) -> None:
    """Write versions to the history and to their products; the caller adds the outbox rows in the same transaction."""
    if not versions:
        return
    published = [v.product for v in versions]
    connection.execute(
        _VERSIONS,
        {
            "seller_id": seller_id,
            "execution_id": execution_id,
            "change_set_ids": time_ordered_uuids(len(versions)),
            "ids": [product.id.value for product in published],
            "items": [product.item_no.value for product in published],
            "versions": [product.version for product in published],
            "life_cycles": [v.life_cycle.value for v in versions],
            "types": [orjson.dumps(v.change_types).decode() for v in versions],
            "changes": [orjson.dumps(v.changes).decode() for v in versions],
            "datas": [v.data for v in versions],
        },
    )
    store_states(connection, [(v.product, v.data_hash) for v in versions])


def store_states(connection: Connection, states: Sequence[tuple[Product, str | None]]) -> None:
    """Store version, published hash and deletion of products."""
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


def repeat(connection: Connection, seller_id: str, again: Sequence[SentAgain]) -> dict[int, LifeCycle]:
    """Write the state of older versions as new ones; says what each was, by item."""
    items = [one.item_no for one in again]
    versions = [one.version for one in again]
    made = connection.execute(
        _REPEATED_VERSIONS,
        {
            "seller_id": seller_id,
            "items": items,
            "newest": [one.repeats for one in again],
            "versions": versions,
            "deleted": LifeCycle.DELETED.value,
            "updated": LifeCycle.UPDATED.value,
        },
    )
    life_cycles = {row.item_no: LifeCycle(row.life_cycle) for row in made}
    delivered = [one.delivered for one in again]
    values = {"seller_id": seller_id, "items": items, "versions": versions, "delivered": delivered}
    connection.execute(_REPEATED_PRODUCTS, values)
    return life_cycles
