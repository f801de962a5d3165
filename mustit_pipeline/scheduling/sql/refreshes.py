"""Sellers whose last full refresh is too old."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, text

from mustit_pipeline.domain.execution import OPEN_STATES
from mustit_pipeline.domain.states import ExecutionStatus
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.sellers.sql.sellers import INTERVAL

_OPEN = ", ".join(f"'{state.value}'" for state in sorted(OPEN_STATES))
_REFRESHES = "product_limit IS NULL AND (full_refetch OR :everything)"
_FAILED = f"status = '{ExecutionStatus.FAILED.value}'"


@dataclass(frozen=True, slots=True)
class StaleSeller:
    """A seller whose last full refresh, or registration if there was none, is too old."""

    seller_id: SellerId
    refreshed_at: datetime


# A new seller's first crawl fetches everything anyway, so its age counts from its registration. A FAILED refresh does
# not count, and neither does one that never read the listing; a cancelled one does, so that it is not repeated an hour
# later. A seller whose refresh failed waits before the next try and goes behind the others, so that failing sellers do
# not take their slots.
_STALE = text(f"""
    SELECT s.seller_id, r.refreshed_at
    FROM sellers s
    JOIN crawling_schedules c USING (seller_id)
    LEFT JOIN LATERAL (
        SELECT started_at FROM crawling_schedule_executions
        WHERE seller_id = s.seller_id AND started_at IS NOT NULL AND listed_count IS NOT NULL AND {_REFRESHES}
          AND status <> '{ExecutionStatus.FAILED.value}'
        ORDER BY started_at DESC LIMIT 1
    ) AS last ON true
    CROSS JOIN LATERAL (SELECT coalesce(last.started_at, s.created_at) AS refreshed_at) AS r
    CROSS JOIN LATERAL (
        SELECT max(at) AS at FROM (
            SELECT coalesce(ended_at, started_at) AS at FROM crawling_schedule_executions
            WHERE seller_id = s.seller_id AND started_at > r.refreshed_at AND {_REFRESHES} AND {_FAILED}
            UNION ALL
            -- One that could not even be planned has never started.
            SELECT coalesce(ended_at, created_at) FROM crawling_schedule_executions
            WHERE seller_id = s.seller_id AND started_at IS NULL AND {_REFRESHES} AND {_FAILED}
        ) AS tries
    ) AS failed
    WHERE s.status = 'ACTIVE' AND c.status = 'ACTIVE'
      AND r.refreshed_at <= :now - greatest(CAST(:age AS interval), {INTERVAL})
      AND (failed.at IS NULL
           OR failed.at <= :now - least(CAST(:age AS interval), greatest(interval '1 day', {INTERVAL})))
      AND s.seller_id <> ALL(CAST(:busy AS text[]))
      AND NOT EXISTS (SELECT FROM crawling_schedule_executions e
                      WHERE e.seller_id = s.seller_id AND e.status IN ({_OPEN}))
    ORDER BY greatest(r.refreshed_at, failed.at), s.seller_id
""")


def stale(
    connection: Connection, now: datetime, age: timedelta, *, everything: bool, busy: Collection[str]
) -> list[StaleSeller]:
    """Active sellers without an open crawl whose last refresh is older than `age` and their interval, oldest first.

    `everything`: every crawl refetches all products, so each is a full refresh.
    """
    values = {"now": now, "age": age, "everything": everything, "busy": sorted(busy)}
    return [StaleSeller(SellerId(row.seller_id), row.refreshed_at) for row in connection.execute(_STALE, values)]
