"""Which sellers have not been fetched as a whole for too long."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text

from mustit_pipeline.domain.execution import OPEN_STATES
from mustit_pipeline.domain.states import ExecutionStatus
from mustit_pipeline.domain.values import SellerId

_OPEN = ", ".join(f"'{state.value}'" for state in sorted(OPEN_STATES))


@dataclass(frozen=True, slots=True)
class StaleSeller:
    """A seller whose last full refresh, or registration where there was none, lies too far back."""

    seller_id: SellerId
    refreshed_at: datetime


# A new seller's first crawl fetches everything anyway, so that its age counts from its registration. One that failed
# before it got anywhere was none; one that somebody cancelled is not forced upon him an hour later.
_STALE = text(f"""
    SELECT s.seller_id, coalesce(last.started_at, s.created_at) AS refreshed_at
    FROM sellers s
    JOIN crawling_schedules c USING (seller_id)
    LEFT JOIN LATERAL (
        SELECT started_at FROM crawling_schedule_executions
        WHERE seller_id = s.seller_id AND started_at IS NOT NULL AND product_limit IS NULL
          AND (full_refetch OR :everything) AND status <> '{ExecutionStatus.FAILED.value}'
        ORDER BY started_at DESC LIMIT 1
    ) AS last ON true
    WHERE s.status = 'ACTIVE' AND c.status = 'ACTIVE' AND coalesce(last.started_at, s.created_at) <= :before
      AND s.seller_id <> ALL(CAST(:busy AS text[]))
      AND NOT EXISTS (SELECT FROM crawling_schedule_executions e
                      WHERE e.seller_id = s.seller_id AND e.status IN ({_OPEN}))
    ORDER BY refreshed_at, s.seller_id
""")


def stale(connection: Connection, before: datetime, *, everything: bool, busy: Collection[str]) -> list[StaleSeller]:
    """Active sellers without a crawl under way that were last refreshed before that, the oldest first.

    `everything`: every crawl refetches all products, so that each is a full refresh.
    """
    rows = connection.execute(_STALE, {"before": before, "everything": everything, "busy": sorted(busy)})
    return [StaleSeller(SellerId(row.seller_id), row.refreshed_at) for row in rows]
