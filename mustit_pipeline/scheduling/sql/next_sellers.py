"""Which sellers are crawled next: open crawls without a run, and sellers that are due."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, text

from mustit_pipeline.crawling.sql.tables import DUE_OPEN
from mustit_pipeline.domain.execution import OPEN_STATES
from mustit_pipeline.domain.states import ExecutionKind, ExecutionStatus


@dataclass(frozen=True, slots=True)
class NextSeller:
    """A seller that waits to be crawled, since when, and its open execution if it has one."""

    seller_id: str
    execution_id: UUID | None
    since: datetime
    light: bool


# Light crawls wait while one that is due has a run, or waits for one.
_OPEN = f"""
    FROM crawling_schedule_executions e
    WHERE e.status IN ('PENDING', 'RUNNING') AND e.seller_id <> ALL(CAST(:busy AS text[]))
      AND (e.kind = '{ExecutionKind.DUE.value}' OR NOT {DUE_OPEN})
"""
# A light crawl that still waits becomes the one that is due; an operator has paused the others.
_DUE = f"""
    FROM crawling_schedules c JOIN sellers s USING (seller_id)
    WHERE (:by_interval OR c.last_triggered_at IS NULL OR c.failed_plans > 0)
      AND c.status = 'ACTIVE' AND s.status = 'ACTIVE' AND c.next_due_at <= now()
      AND c.seller_id <> ALL(CAST(:busy AS text[]))
      AND NOT EXISTS (SELECT FROM crawling_schedule_executions e
                      WHERE e.seller_id = c.seller_id
                        AND e.status IN ({", ".join(f"'{state.value}'" for state in sorted(OPEN_STATES))})
                        AND (e.kind = '{ExecutionKind.DUE.value}' OR e.status = '{ExecutionStatus.PAUSED.value}'))
"""

# Each slice that a crawl has had is subtracted from its waiting time.
_NEXT = text(f"""
    (SELECT e.seller_id, e.execution_id, e.created_at + make_interval(secs => e.slice_no * :slice_seconds) AS since,
            e.kind = '{ExecutionKind.LIGHT.value}' AS light
     {_OPEN})
    UNION ALL
    (SELECT c.seller_id, NULL, c.next_due_at, false {_DUE} ORDER BY c.next_due_at LIMIT :limit)
    ORDER BY light, since, seller_id LIMIT :limit
""")

_COUNT = text(f"SELECT count(*) FROM (SELECT e.seller_id {_OPEN} UNION SELECT c.seller_id {_DUE}) AS waiting")


def next_sellers(
    connection: Connection, limit: int, *, busy: Collection[str], slice_seconds: float, by_interval: bool = True
) -> list[NextSeller]:
    """The sellers that have waited longest, without the busy ones; light crawls only where no other is waiting.

    Without `by_interval`, where EventBridge decides what is due: only open crawls, first crawls and failed plans.
    """
    values = {"limit": limit, "busy": sorted(busy), "slice_seconds": slice_seconds, "by_interval": by_interval}
    found = [NextSeller(*row) for row in connection.execute(_NEXT, values)]
    due = [one for one in found if not one.light]
    # One slot stays free for the next seller that is due.
    return due or found[: limit - 1]


def count_next_sellers(connection: Connection, *, busy: Collection[str], by_interval: bool = True) -> int:
    """The number of waiting sellers, without the busy ones."""
    return connection.execute(_COUNT, {"busy": sorted(busy), "by_interval": by_interval}).scalar_one()
