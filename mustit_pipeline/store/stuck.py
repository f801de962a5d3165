"""What somebody left behind, found by index alone: it is asked every minute, and the answer is nearly always no."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, text

from mustit_pipeline.domain.execution import OPEN_STATES
from mustit_pipeline.domain.states import AGENT, EXECUTION, PRODUCT_OUTBOX, ExecutionStatus
from mustit_pipeline.store.task_states import LEASED


@dataclass(frozen=True, slots=True)
class StuckCounts:
    """Leases that ended with their worker, events whose sender is gone, agents whose rest is over."""

    tasks: int
    events: int
    agents: int


@dataclass(frozen=True, slots=True)
class OpenExecution:
    """An execution that a run could work on, and when anything of it moved last."""

    execution_id: UUID
    seller_id: str
    moved_at: datetime


_COUNTS = text(f"""
    SELECT (SELECT count(*) FROM crawler_tasks WHERE status IN ({LEASED}) AND lease_expires_at < now()) AS tasks,
           (SELECT count(*) FROM product_outbox
            WHERE status = '{PRODUCT_OUTBOX.target("send").value}' AND lease_expires_at < now()) AS events,
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

_BEGUN = text("""
    SELECT execution_id, seller_id, updated_at AS moved_at FROM crawling_schedule_executions
    WHERE status = ANY(CAST(:workable AS text[])) AND slice_no > 0
    ORDER BY created_at
""")


def counts(connection: Connection, now: datetime) -> StuckCounts:
    """How much has lost its owner, or waits for nothing any more."""
    return StuckCounts(*connection.execute(_COUNTS, {"now": now}).one())


def unended(connection: Connection, idle_seconds: float) -> list[OpenExecution]:
    """Running executions whose tasks have all ended and of which nothing has moved for so long."""
    return [OpenExecution(*row) for row in connection.execute(_UNENDED, {"idle_seconds": idle_seconds})]


def begun(connection: Connection) -> list[OpenExecution]:
    """Executions that have had a slice and could have another."""
    workable = [status.value for status in OPEN_STATES if status is not ExecutionStatus.PAUSED]
    return [OpenExecution(*row) for row in connection.execute(_BEGUN, {"workable": workable})]
