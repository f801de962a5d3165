"""The numbers of a day by seller, read from permanent history alone, so that any past day can be computed again."""

from dataclasses import dataclass
from datetime import date, datetime

from sqlalchemy import Connection, text

from mustit_pipeline.crawling.sql.tasks import OPEN
from mustit_pipeline.domain.states import ChangeType, ExecutionStatus, LifeCycle, TaskStatus
from mustit_pipeline.foundation.tables import SELLER_BY_TIME
from mustit_pipeline.outbox.sql.outbox_states import FIRST_VERSION


@dataclass(frozen=True, slots=True)
class SellerDay:
    """One seller's day: the crawls that started in it, the changes seen in it, the events delivered in it."""

    seller_id: str
    crawls: int
    tasks_total: int
    tasks_completed: int
    tasks_failed: int
    tasks_waiting: int
    tasks_published: int
    tasks_in_progress: int
    tasks_retry: int
    requests: int
    throttled: int
    products_total: int
    products_complete: int
    change_sets: int
    changes: dict[str, int]
    delivered: int
    delivery_median_hours: float | None
    delivery_max_hours: float | None

    @classmethod
    def nothing(cls, seller_id: str) -> "SellerDay":
        """A day before the seller was registered."""
        return cls(seller_id, *([0] * 13), changes={}, delivered=0, delivery_median_hours=None, delivery_max_hours=None)


CHANGE_KINDS = (*(kind.value for kind in LifeCycle if kind is not LifeCycle.UPDATED), *(t.value for t in ChangeType))

_COUNTED = ",\n               ".join(
    f"count(*) FILTER (WHERE k.kind = '{kind}') AS changes_{kind.lower()}" for kind in CHANGE_KINDS
)

# By seller through the indexes on (seller, time), which ORDER BY with OFFSET 0 enforces: a day is a small part of
# tables that only grow. Ended tasks are counted in their execution, which is kept longer; only open tasks are read.
# Complete products were counted as the last crawl ended; those of a seller are counted here only before its first end.
_DAYS = text(f"""
    SELECT s.seller_id, crawls.*, opened.*, kinds.*, sent.*,
           coalesce(listed.total, s.total_product_count) AS products_total,
           -- As the last crawl left it, or back from what is stored now.
           greatest(0, coalesce(counted.complete_count + moved.gained, present.complete - moved.gained))
               AS products_complete
    FROM sellers s
    CROSS JOIN LATERAL (
        SELECT count(*) AS crawls, coalesce(sum(total_tasks), 0) AS tasks_total,
               coalesce(sum(completed_tasks), 0) AS tasks_completed, coalesce(sum(failed_tasks), 0) AS tasks_failed,
               coalesce(sum(requests), 0) AS requests, coalesce(sum(throttled), 0) AS throttled
        FROM crawling_schedule_executions
        WHERE seller_id = s.seller_id AND started_at >= :start AND started_at < :end
    ) AS crawls
    CROSS JOIN LATERAL (
        SELECT count(*) FILTER (WHERE t.status = '{TaskStatus.WAITING.value}') AS tasks_waiting,
               count(*) FILTER (WHERE t.status = '{TaskStatus.PUBLISHED.value}') AS tasks_published,
               count(*) FILTER (WHERE t.status = '{TaskStatus.IN_PROGRESS.value}') AS tasks_in_progress,
               count(*) FILTER (WHERE t.status = '{TaskStatus.RETRY.value}') AS tasks_retry
        FROM crawling_schedule_executions e
        CROSS JOIN LATERAL (SELECT status FROM crawler_tasks
                            WHERE task_month = e.task_month AND execution_id = e.execution_id
                              AND status IN ({OPEN})) AS t
        WHERE e.seller_id = s.seller_id AND e.started_at >= :start AND e.started_at < :end
          AND e.completed_tasks + e.failed_tasks < e.total_tasks
    ) AS opened
    CROSS JOIN LATERAL (
        SELECT count(DISTINCT c.change_set_id) AS change_sets,
               {_COUNTED}
        FROM (SELECT * FROM product_change_sets
              WHERE {SELLER_BY_TIME} = s.seller_id AND detected_at >= :start AND detected_at < :end
              ORDER BY detected_at OFFSET 0) AS c
        LEFT JOIN LATERAL unnest(CASE WHEN c.life_cycle = '{LifeCycle.UPDATED.value}' THEN c.change_types
                                      ELSE ARRAY[c.life_cycle] END) AS k(kind) ON true
    ) AS kinds
    LEFT JOIN LATERAL (
        SELECT execution_id, complete_count, ended_at FROM crawling_schedule_executions
        WHERE seller_id = s.seller_id AND started_at < :end AND ended_at < :end
          AND status = '{ExecutionStatus.COMPLETED.value}'
        ORDER BY started_at DESC LIMIT 1
    ) AS counted ON true
    CROSS JOIN LATERAL (
        SELECT count(*) AS complete FROM products
        WHERE counted.complete_count IS NULL AND seller_id = s.seller_id AND complete AND deleted_at IS NULL
    ) AS present
    CROSS JOIN LATERAL (
        SELECT count(*) FILTER (
                   WHERE life_cycle = '{LifeCycle.RESTORED.value}'
                   -- A hold that is released publishes what its crawl has counted.
                      OR (life_cycle = '{LifeCycle.CREATED.value}'
                          AND (counted.complete_count IS NULL OR later.execution_id <> counted.execution_id))
               ) - count(*) FILTER (WHERE life_cycle = '{LifeCycle.DELETED.value}') AS gained
        FROM (SELECT life_cycle, execution_id FROM product_change_sets
              WHERE {SELLER_BY_TIME} = s.seller_id
                AND detected_at >= CASE WHEN counted.complete_count IS NULL THEN :end ELSE counted.ended_at END
                AND detected_at < CASE WHEN counted.complete_count IS NULL THEN 'infinity' ELSE :end END
              ORDER BY detected_at OFFSET 0) AS later
    ) AS moved
    LEFT JOIN LATERAL (
        SELECT listed_count - foreign_items AS total FROM crawling_schedule_executions
        WHERE seller_id = s.seller_id AND started_at < :end AND listed_count IS NOT NULL
        ORDER BY started_at DESC LIMIT 1
    ) AS listed ON true
    LEFT JOIN (
        SELECT o.seller_id AS receiver, count(*) AS delivered,
               percentile_cont(0.5) WITHIN GROUP (ORDER BY o.completed_at - c.detected_at) AS median,
               max(o.completed_at - c.detected_at) AS longest
        FROM product_outbox o
        JOIN product_change_sets c
          ON c.seller_id = o.seller_id AND c.item_no = o.item_no AND c.version = {FIRST_VERSION}
        WHERE o.status = 'COMPLETED' AND o.superseded_by IS NULL AND o.completed_at >= :start AND o.completed_at < :end
          AND (CAST(:seller_id AS text) IS NULL OR o.seller_id = :seller_id)
        GROUP BY o.seller_id
    ) AS sent ON sent.receiver = s.seller_id
    WHERE s.created_at < :end AND (CAST(:seller_id AS text) IS NULL OR s.seller_id = :seller_id)
    ORDER BY s.seller_id
""")

_DAYS_ENDED_SINCE = text("""
    SELECT DISTINCT CAST(e.started_at AT TIME ZONE :zone AS date) AS day
    FROM sellers s
    CROSS JOIN LATERAL (SELECT started_at, ended_at, updated_at FROM crawling_schedule_executions
                        WHERE seller_id = s.seller_id AND started_at >= :horizon AND started_at < :since) AS e
    WHERE coalesce(e.ended_at, e.updated_at) >= :since
    ORDER BY day
""")


def seller_days(
    connection: Connection, start: datetime, end: datetime, seller_id: str | None = None
) -> list[SellerDay]:
    """The numbers between two times, for every seller registered by then or for one."""
    rows = connection.execute(_DAYS, {"start": start, "end": end, "seller_id": seller_id})
    return [
        SellerDay(
            seller_id=r.seller_id,
            crawls=r.crawls,
            tasks_total=r.tasks_total,
            tasks_completed=r.tasks_completed,
            tasks_failed=r.tasks_failed,
            tasks_waiting=r.tasks_waiting,
            tasks_published=r.tasks_published,
            tasks_in_progress=r.tasks_in_progress,
            tasks_retry=r.tasks_retry,
            requests=r.requests,
            throttled=r.throttled,
            products_total=r.products_total,
            products_complete=r.products_complete,
            change_sets=r.change_sets,
            changes={kind: n for kind in CHANGE_KINDS if (n := getattr(r, f"changes_{kind.lower()}"))},
            delivered=r.delivered or 0,
            delivery_median_hours=None if r.median is None else r.median.total_seconds() / 3600,
            delivery_max_hours=None if r.longest is None else r.longest.total_seconds() / 3600,
        )
        for r in rows
    ]


def days_moved_since(connection: Connection, since: datetime, *, horizon: datetime, zone: str) -> list[date]:
    """Days before `since`, back to a horizon, whose crawls still changed after it."""
    values = {"since": since, "horizon": horizon, "zone": zone}
    return list(connection.execute(_DAYS_ENDED_SINCE, values).scalars())
