"""Stuck work: the queries run every minute, nearly always find nothing, and read what grows through indexes alone."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, text

from mustit_pipeline.catalog.sql.publication import NEWEST_VERSION, ready_of
from mustit_pipeline.catalog.sql.tables import UNPUBLISHED_PRODUCT, sellers_in
from mustit_pipeline.crawling.sql.tables import OPEN_EXECUTION
from mustit_pipeline.crawling.sql.tasks import HAS_LEASE
from mustit_pipeline.domain.states import (
    AGENT,
    EXECUTION,
    PRODUCT_OUTBOX,
    SCHEDULER_OUTBOX,
    ChangeHoldStatus,
)


@dataclass(frozen=True, slots=True)
class StuckCounts:
    """The numbers of expired leases, of events whose claim has expired, and of agents whose suspension is over."""

    tasks: int
    events: int
    agents: int


@dataclass(frozen=True, slots=True)
class OpenExecution:
    """An execution that has not ended, and when anything of it moved last."""

    execution_id: UUID
    seller_id: str
    moved_at: datetime


_COUNTS = text(f"""
    SELECT (SELECT count(*) FROM crawler_tasks WHERE lease_expires_at < now() AND {HAS_LEASE}) AS tasks,
           (SELECT count(*) FROM product_outbox
            WHERE status = '{PRODUCT_OUTBOX.target("send").value}' AND lease_expires_at < now())
           + (SELECT count(*) FROM scheduler_outbox
              WHERE status = '{SCHEDULER_OUTBOX.target("send").value}' AND lease_expires_at < now()) AS events,
           (SELECT count(*) FROM user_agents
            WHERE status = '{AGENT.target("suspend").value}' AND suspended_until <= :now) AS agents
""")

_UNENDED = text(f"""
    SELECT execution_id, seller_id, updated_at AS moved_at FROM crawling_schedule_executions
    WHERE status = '{EXECUTION.target("start").value}' AND sweep_status <> 'PENDING'
      AND completed_tasks + failed_tasks = total_tasks
      AND updated_at < now() - make_interval(secs => :idle_seconds)
    ORDER BY updated_at
""")


# Only of ended crawls. Held changes wait for a crawl or an admin, and unready products for their next crawl: processing
# them every minute would change nothing. Few sellers are left for the check of single products.
_UNPROCESSED = text(f"""
    WITH RECURSIVE {sellers_in("pending", "product_raw_data", "status = 'PENDING'")},
    {sellers_in("unpublished", "products", UNPUBLISHED_PRODUCT)},
    idle AS MATERIALIZED (
        SELECT seller_id, bool_or(fetched) AS fetched
        FROM (SELECT seller_id, true FROM pending UNION ALL SELECT seller_id, false FROM unpublished)
             AS found(seller_id, fetched)
        WHERE seller_id IS NOT NULL
          AND NOT EXISTS (SELECT FROM crawling_schedule_executions e
                          WHERE e.seller_id = found.seller_id AND e.{OPEN_EXECUTION})
          AND NOT EXISTS (SELECT FROM crawling_schedule_executions e
                          WHERE e.seller_id = found.seller_id
                            AND e.updated_at >= now() - make_interval(secs => :idle_seconds))
        GROUP BY seller_id
    )
    SELECT i.seller_id FROM idle i
    WHERE i.fetched OR (
        NOT EXISTS (SELECT FROM change_holds h
                    WHERE h.seller_id = i.seller_id AND h.status = '{ChangeHoldStatus.OPEN.value}')
        AND EXISTS (SELECT FROM products p
                    {NEWEST_VERSION}
                    WHERE {ready_of("i.seller_id")}))
    ORDER BY i.seller_id
""")


def counts(connection: Connection, now: datetime) -> StuckCounts:
    """The numbers of stuck tasks and events, and of agents to recover."""
    return StuckCounts(*connection.execute(_COUNTS, {"now": now}).one())


def unended(connection: Connection, idle_seconds: float) -> list[OpenExecution]:
    """Running executions whose tasks have all ended, without progress for so long."""
    return [OpenExecution(*row) for row in connection.execute(_UNENDED, {"idle_seconds": idle_seconds})]


def unprocessed(connection: Connection, idle_seconds: float) -> list[str]:
    """Sellers without an open execution, and without progress for so long, whose fetched changes still wait."""
    return list(connection.execute(_UNPROCESSED, {"idle_seconds": idle_seconds}).scalars())
