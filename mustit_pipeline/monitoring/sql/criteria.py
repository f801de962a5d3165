"""The numbers behind the success criteria and the quality of the data, over a window and by seller."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text

from mustit_pipeline.domain.states import (
    ChangeType,
    ExecutionStatus,
    LifeCycle,
    OutboxStatus,
    RawStatus,
    SellerStatus,
    TaskType,
    TruthVerdict,
)
from mustit_pipeline.foundation.tables import BY_TIME, SELLER_BY_TIME
from mustit_pipeline.outbox.sql.outbox_states import FIRST_CHANGED_AT
from mustit_pipeline.sellers.sql.sellers import INTERVAL

# Examined versions per seller: enough to see a missing field, few enough for any number of sellers.
VERSIONS_OF_A_SELLER = 20
# The path of each essential field.
LIVED_BY = {
    "name": "name",
    "brandName": "brandName",
    "category": "category,header",
    "normalPrice": "normalPrice",
    "sellingPrice": "sellingPrice",
    "discountPrice": "discountPrice",
    "stock": "stock",
    "images": "images",
}


@dataclass(frozen=True, slots=True)
class Outcomes:
    """How a window's crawls and their tasks ended."""

    completed_crawls: int
    failed_crawls: int
    completed_tasks: int
    failed_tasks: int


@dataclass(frozen=True, slots=True)
class Completeness:
    """Products that active sellers list, and those that have been incomplete for too long."""

    listed: int
    incomplete: int
    # The number of sellers with incomplete products, and those with most of them.
    behind: int
    sellers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Deliveries:
    """Events delivered in a window, the late ones among them, and late ones that are not delivered yet."""

    delivered: int
    late: int
    overdue: int
    longest_hours: float


@dataclass(frozen=True, slots=True)
class Throughput:
    """Products fetched in a window, and tasks that have waited for the whole window."""

    fetched: int
    waiting: int


@dataclass(frozen=True, slots=True)
class Jumps:
    """A seller's published price jumps."""

    seller_id: str
    jumped: int
    products: int


@dataclass(frozen=True, slots=True)
class Gaps:
    """The number of examined versions, and how many lack each field."""

    versions: int
    missing: dict[str, int]


_ACTIVE = f"s.status = '{SellerStatus.ACTIVE.value}'"

# By seller through the index on (seller, time): a window is a small part of a table that only grows.
_OUTCOMES = text(f"""
    SELECT coalesce(sum(e.won), 0) AS completed_crawls, coalesce(sum(e.lost), 0) AS failed_crawls,
           coalesce(sum(e.completed), 0) AS completed_tasks, coalesce(sum(e.failed), 0) AS failed_tasks
    FROM sellers s
    CROSS JOIN LATERAL (
        SELECT count(*) FILTER (WHERE status = '{ExecutionStatus.COMPLETED.value}') AS won,
               count(*) FILTER (WHERE status = '{ExecutionStatus.FAILED.value}' AND NOT tried_again) AS lost,
               sum(completed_tasks) AS completed, sum(failed_tasks) AS failed
        FROM (
            SELECT status, completed_tasks, failed_tasks,
                   -- One that could not even be planned counts by the next try before its interval is over.
                   started_at IS NULL AND coalesce(
                       lead(created_at) OVER w BETWEEN ended_at AND created_at + {INTERVAL}, false) AS tried_again
            FROM (
                SELECT status, completed_tasks, failed_tasks, created_at, started_at, ended_at
                FROM crawling_schedule_executions
                WHERE seller_id = s.seller_id AND started_at >= :since AND status <> '{ExecutionStatus.CANCELLED.value}'
                UNION ALL
                -- It has never started.
                SELECT status, completed_tasks, failed_tasks, created_at, started_at, ended_at
                FROM crawling_schedule_executions
                WHERE seller_id = s.seller_id AND started_at IS NULL AND status = '{ExecutionStatus.FAILED.value}'
                  AND ended_at >= :since
            ) AS tries
            WINDOW w AS (ORDER BY created_at)
        ) AS one
    ) AS e
""")

_COMPLETENESS = text(f"""
    SELECT coalesce(sum(s.total_product_count), 0) AS listed, coalesce(sum(p.incomplete), 0) AS incomplete,
           count(*) FILTER (WHERE p.incomplete > 0) AS behind,
           (array_agg(s.seller_id || ' (' || p.incomplete || ')' ORDER BY p.incomplete DESC, s.seller_id)
            FILTER (WHERE p.incomplete > 0))[1:CAST(:most AS int)] AS sellers
    FROM sellers s
    CROSS JOIN LATERAL (
        SELECT count(*) AS incomplete FROM products
        WHERE seller_id = s.seller_id AND NOT complete AND deleted_at IS NULL AND foreign_at IS NULL
          AND created_at < :before
    ) AS p
    WHERE {_ACTIVE}
""")

# An event is written in the transaction of its change.
_DELIVERIES = text(f"""
    WITH sent AS (
        SELECT o.completed_at - {FIRST_CHANGED_AT} AS took FROM product_outbox o
        WHERE o.status = '{OutboxStatus.COMPLETED.value}' AND o.superseded_by IS NULL AND o.completed_at >= :since
    )
    SELECT (SELECT count(*) FROM sent) AS delivered,
           (SELECT count(*) FROM sent WHERE took > make_interval(secs => :seconds)) AS late,
           (SELECT count(*) FROM product_outbox o
            WHERE o.status IN ('{OutboxStatus.WAITING.value}', '{OutboxStatus.SENDING.value}',
                               '{OutboxStatus.FAILED.value}') AND o.{BY_TIME}
              AND (o.created_at < :now - make_interval(secs => :seconds)
                   OR {FIRST_CHANGED_AT} < :now - make_interval(secs => :seconds))) AS overdue,
           coalesce((SELECT extract(epoch FROM max(took)) / 3600 FROM sent), 0) AS longest
""")

_THROUGHPUT = text(f"""
    SELECT coalesce(sum(r.fetched), 0) AS fetched, coalesce(sum(e.waiting), 0) AS waiting
    FROM sellers s
    CROSS JOIN LATERAL (
        SELECT count(*) AS fetched FROM (
            SELECT FROM product_raw_data
            WHERE seller_id = s.seller_id AND fetched_at >= :since AND source = '{TaskType.PRODUCT_DETAIL.value}'
              AND status = '{RawStatus.PROCESSED.value}'
            UNION ALL
            SELECT FROM product_raw_data
            WHERE seller_id = s.seller_id AND fetched_at >= :since AND source = '{TaskType.PRODUCT_DETAIL.value}'
              AND status = '{RawStatus.PENDING.value}'
        ) AS bodies
    ) AS r
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(total_tasks - completed_tasks - failed_tasks), 0) AS waiting
        FROM crawling_schedule_executions
        WHERE seller_id = s.seller_id AND created_at < :since
          AND status IN ('{ExecutionStatus.PENDING.value}', '{ExecutionStatus.RUNNING.value}')
    ) AS e
""")

_JUMPS = text(f"""
    SELECT s.seller_id, c.jumped, s.total_product_count AS products
    FROM sellers s
    CROSS JOIN LATERAL (
        SELECT count(DISTINCT v.item_no) AS jumped
        FROM (SELECT item_no, changes FROM product_change_sets
              WHERE {SELLER_BY_TIME} = s.seller_id AND detected_at >= :since
                AND life_cycle = '{LifeCycle.UPDATED.value}' AND '{ChangeType.PRICE.value}' = ANY(change_types)
              ORDER BY detected_at OFFSET 0) AS v
        CROSS JOIN LATERAL jsonb_array_elements(v.changes) AS one
        WHERE one.value ->> 'type' = '{ChangeType.PRICE.value}' AND one.value ->> 'field' <> 'discountRate'
          AND jsonb_typeof(one.value -> 'old') = 'number' AND jsonb_typeof(one.value -> 'new') = 'number'
          AND CAST(one.value ->> 'old' AS numeric) > 0
          AND (CAST(one.value ->> 'new' AS numeric) * :factor < CAST(one.value ->> 'old' AS numeric)
               OR CAST(one.value ->> 'new' AS numeric) > CAST(one.value ->> 'old' AS numeric) * :factor)
    ) AS c
    WHERE c.jumped > 0 ORDER BY c.jumped DESC, s.seller_id
""")

_MISSING = ",\n           ".join(
    f"count(*) FILTER (WHERE coalesce(d.data #> '{{{path}}}', 'null') IN ('null', '\"\"', '[]', '{{}}')) AS \"{name}\""
    for name, path in LIVED_BY.items()
)

_GAPS = text(f"""
    SELECT count(*) AS versions, {_MISSING}
    FROM sellers s
    CROSS JOIN LATERAL (
        SELECT product_data FROM product_change_sets
        WHERE {SELLER_BY_TIME} = s.seller_id AND detected_at >= :since AND product_data IS NOT NULL
        ORDER BY detected_at DESC LIMIT {VERSIONS_OF_A_SELLER}
    ) AS v
    CROSS JOIN LATERAL (SELECT CAST(v.product_data AS jsonb) AS data OFFSET 0) AS d
""")

_VERDICTS = text(f"""
    SELECT verdict, count(*) AS number FROM (
        SELECT verdict FROM truth_samples WHERE judged_at >= :since
        UNION ALL
        SELECT verdict FROM truth_samples WHERE verdict = '{TruthVerdict.OPEN.value}'
    ) AS judged GROUP BY verdict
""")


def outcomes(connection: Connection, since: datetime) -> Outcomes:
    """How the window's crawls and their tasks ended; cancelled ones are not counted."""
    return Outcomes(*map(int, connection.execute(_OUTCOMES, {"since": since}).one()))


def completeness(connection: Connection, before: datetime, most: int) -> Completeness:
    """The products of active sellers, those known since `before` and still incomplete, and the sellers with most."""
    row = connection.execute(_COMPLETENESS, {"before": before, "most": most}).one()
    return Completeness(row.listed, int(row.incomplete), row.behind, tuple(row.sellers or ()))


def deliveries(connection: Connection, since: datetime, now: datetime, hours: float) -> Deliveries:
    """How long changes took to the product server."""
    row = connection.execute(_DELIVERIES, {"since": since, "now": now, "seconds": hours * 3600}).one()
    return Deliveries(row.delivered, row.late, row.overdue, float(row.longest))


def throughput(connection: Connection, since: datetime) -> Throughput:
    """How much was fetched, and how many tasks have waited all the time."""
    return Throughput(*map(int, connection.execute(_THROUGHPUT, {"since": since}).one()))


def jumps(connection: Connection, since: datetime, factor: float) -> list[Jumps]:
    """Sellers whose published prices jumped, most of them first."""
    return [Jumps(*row) for row in connection.execute(_JUMPS, {"since": since, "factor": factor})]


def gaps(connection: Connection, since: datetime) -> Gaps:
    """The missing fields of each seller's newest versions."""
    row = connection.execute(_GAPS, {"since": since}).one()
    return Gaps(row.versions, {name: getattr(row, name) for name in LIVED_BY})


def verdicts(connection: Connection, since: datetime) -> dict[TruthVerdict, int]:
    """How products compared with the marketplace were judged."""
    rows = connection.execute(_VERDICTS, {"since": since})
    return {TruthVerdict(row.verdict): row.number for row in rows}
