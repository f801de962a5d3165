"""The pipeline's activity for people who watch it: crawls, changes by the hour, and whether anything has moved."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sqlalchemy import Connection, text

from mustit_pipeline.catalog.sql.tables import OF_ALL_SELLERS
from mustit_pipeline.crawling.sql.tables import OPEN_EXECUTION
from mustit_pipeline.domain.states import (
    ChangeHoldStatus,
    ExecutionStatus,
    HoldStatus,
    LifeCycle,
    OutboxStatus,
    SellerStatus,
)
from mustit_pipeline.foundation.tables import BY_TIME

# Change sets that the sum of a day reads at most: the page says where that was not all.
MOST_COUNTED = 50_000


@dataclass(frozen=True, slots=True)
class Schedules:
    """Sellers that are crawled: how many, how many now, how many are due, and when the next one is."""

    sellers: int
    active: int
    running: int
    due: int
    next_due_at: datetime | None


@dataclass(frozen=True, slots=True)
class HourOfChanges:
    """Changes of one kind within one hour: a type of field change, or a step in the life cycle."""

    hour: datetime
    kind: str
    number: int


@dataclass(frozen=True, slots=True)
class CountedChanges:
    """Changes by the hour, of the newest change sets alone where there are too many to count."""

    hours: list[HourOfChanges]
    is_whole: bool


class Moving(StrEnum):
    """Parts of the pipeline that a page may watch."""

    CRAWLS = "crawls"
    EVENTS = "events"
    CHANGES = "changes"
    HOLDS = "holds"
    ALERTS = "alerts"


_SCHEDULES = text(f"""
    SELECT (SELECT count(*) FROM sellers) AS sellers,
           (SELECT count(*) FROM sellers WHERE status = '{SellerStatus.ACTIVE.value}') AS active,
           (SELECT count(*) FROM crawling_schedule_executions
            WHERE {OPEN_EXECUTION} AND status = '{ExecutionStatus.RUNNING.value}') AS running, due.*,
           (SELECT min(next_due_at) FROM crawling_schedules WHERE status = 'ACTIVE' AND next_due_at > now()) AS next
    FROM (SELECT count(*) AS due FROM crawling_schedules c
          WHERE c.status = 'ACTIVE' AND c.next_due_at <= now()
            AND NOT EXISTS (SELECT FROM crawling_schedule_executions e
                            WHERE e.seller_id = c.seller_id AND e.{OPEN_EXECUTION})) AS due
""")

_CHANGES_BY_HOUR = text(f"""
    WITH newest AS MATERIALIZED (
        SELECT detected_at, life_cycle, change_types FROM product_change_sets
        WHERE {OF_ALL_SELLERS} AND detected_at >= :since
        ORDER BY detected_at DESC LIMIT {MOST_COUNTED}
    )
    SELECT date_trunc('hour', detected_at) AS hour, kind, count(*) AS number,
           (SELECT count(*) FROM newest) AS change_sets
    FROM newest CROSS JOIN LATERAL unnest(
        CASE WHEN life_cycle = '{LifeCycle.UPDATED.value}' THEN change_types ELSE ARRAY[life_cycle] END) AS kind
    GROUP BY 1, 2 ORDER BY 1, 2
""")

_MOVING = {
    Moving.CRAWLS: text(f"""
        SELECT count(*), coalesce(sum(completed_tasks + failed_tasks), 0), max(updated_at)
        FROM crawling_schedule_executions WHERE {OPEN_EXECUTION}
    """),
    Moving.EVENTS: text(f"""
        SELECT (SELECT count(*) FROM (SELECT FROM product_outbox
                WHERE status = '{OutboxStatus.WAITING.value}' AND {BY_TIME} ORDER BY created_at DESC LIMIT 500) w),
               (SELECT count(*) FROM (SELECT FROM product_outbox
                WHERE status = '{OutboxStatus.FAILED.value}' AND {BY_TIME} ORDER BY created_at DESC LIMIT 500) f),
               (SELECT max(completed_at) FROM product_outbox
                WHERE status = '{OutboxStatus.COMPLETED.value}' AND superseded_by IS NULL)
    """),
    Moving.CHANGES: text(f"SELECT max(detected_at) FROM product_change_sets WHERE {OF_ALL_SELLERS}"),
    Moving.HOLDS: text(f"""
        SELECT (SELECT coalesce(sum(cardinality(item_nos)), 0) FROM deletion_holds
                WHERE status = '{HoldStatus.OPEN.value}'),
               (SELECT max(opened_at) FROM deletion_holds WHERE status = '{HoldStatus.OPEN.value}'),
               (SELECT coalesce(sum(suspicious), 0) FROM change_holds WHERE status = '{ChangeHoldStatus.OPEN.value}')
    """),
    Moving.ALERTS: text("SELECT count(*), max(opened_at) FROM alerts WHERE ended_at IS NULL"),
}

_OF_SELLERS = text("""
    SELECT s.seller_id, s.updated_at, e.execution_id, e.status, e.completed_tasks, e.failed_tasks, e.total_tasks
    FROM unnest(CAST(:sellers AS text[])) AS wanted(seller_id)
    JOIN sellers s USING (seller_id)
    LEFT JOIN LATERAL (SELECT * FROM crawling_schedule_executions e
                       WHERE e.seller_id = s.seller_id ORDER BY e.started_at DESC NULLS FIRST LIMIT 1) e ON true
""")


def schedules(connection: Connection) -> Schedules:
    """Sellers by what is due."""
    return Schedules(*connection.execute(_SCHEDULES).one())


def changes_by_hour(connection: Connection, since: datetime) -> CountedChanges:
    """How much has changed in each hour since then, in the newest 50,000 change sets at most."""
    found = connection.execute(_CHANGES_BY_HOUR, {"since": since}).all()
    hours = [HourOfChanges(row.hour, row.kind, row.number) for row in found]
    return CountedChanges(hours, is_whole=not found or found[0].change_sets < MOST_COUNTED)


def marks(connection: Connection, wanted: Collection[Moving]) -> dict[Moving, tuple[object, ...]]:
    """A mark of each part, which is another one when something in it has moved."""
    return {part: tuple(connection.execute(_MOVING[part]).one()) for part in wanted}


def marks_of_sellers(connection: Connection, seller_ids: Collection[str]) -> dict[str, tuple[object, ...]]:
    """The same for sellers and their newest crawl."""
    return {row.seller_id: tuple(row) for row in connection.execute(_OF_SELLERS, {"sellers": list(seller_ids)})}
