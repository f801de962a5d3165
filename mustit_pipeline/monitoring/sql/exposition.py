"""What only the metrics ask: numbers of the present, each from an index and independent of what is stored."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text

from mustit_pipeline.domain.execution import OPEN_STATES
from mustit_pipeline.domain.states import ExecutionStatus, OutboxStatus, ScheduleStatus, SellerStatus
from mustit_pipeline.foundation.tables import BY_TIME, listed

UNDELIVERED = (OutboxStatus.WAITING, OutboxStatus.SENDING, OutboxStatus.FAILED)


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one state, and when the oldest was made."""

    number: int
    oldest: datetime | None


@dataclass(frozen=True, slots=True)
class OpenCrawls:
    """The open crawls of one state, and their tasks that have not ended."""

    number: int
    tasks: int


_OUTBOX = text(
    " UNION ALL ".join(
        f"SELECT '{state.value}' AS state, count(*) AS number, min(created_at) AS oldest FROM product_outbox "
        f"WHERE status = '{state.value}' AND {BY_TIME}"
        for state in UNDELIVERED
    )
)

_SELLERS = text("SELECT status, count(*) AS number FROM sellers GROUP BY status")

_DUE = text(f"""
    SELECT count(*) FROM crawling_schedules c JOIN sellers s USING (seller_id)
    WHERE c.status = '{ScheduleStatus.ACTIVE.value}' AND s.status = '{SellerStatus.ACTIVE.value}'
      AND c.next_due_at <= now()
      AND NOT EXISTS (SELECT FROM crawling_schedule_executions e
                      WHERE e.seller_id = c.seller_id AND e.status IN ({listed(OPEN_STATES)}))
""")

_OPEN = text(f"""
    SELECT status, count(*) AS number, sum(total_tasks - completed_tasks - failed_tasks) AS tasks
    FROM crawling_schedule_executions WHERE status IN ({listed(OPEN_STATES)}) GROUP BY status
""")

# By the index of leases: as many rows as the workers hold, however many wait.
_LEASED = text("SELECT count(*) FROM crawler_tasks WHERE lease_expires_at IS NOT NULL")


def outbox(connection: Connection) -> dict[OutboxStatus, Rows]:
    """Events that have not been delivered, by state."""
    return {OutboxStatus(row.state): Rows(row.number, row.oldest) for row in connection.execute(_OUTBOX)}


def sellers(connection: Connection) -> dict[SellerStatus, int]:
    """Sellers by state."""
    found = {SellerStatus(row.status): row.number for row in connection.execute(_SELLERS)}
    return {status: found.get(status, 0) for status in SellerStatus}


def due_sellers(connection: Connection) -> int:
    """Active sellers that are due and have no open crawl yet."""
    return connection.execute(_DUE).scalar_one()


def open_executions(connection: Connection) -> dict[ExecutionStatus, OpenCrawls]:
    """Crawls that have not ended, by state."""
    found = {ExecutionStatus(row.status): OpenCrawls(row.number, row.tasks) for row in connection.execute(_OPEN)}
    return {status: found.get(status, OpenCrawls(0, 0)) for status in sorted(OPEN_STATES)}


def leased_tasks(connection: Connection) -> int:
    """Tasks that a worker holds."""
    return connection.execute(_LEASED).scalar_one()
