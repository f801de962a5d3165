"""What an execution is doing at this moment, and when it will be done."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from mustit_pipeline.agents import roster
from mustit_pipeline.agents.roster import PoolStatus
from mustit_pipeline.crawling.estimate import seconds_for
from mustit_pipeline.domain.states import ExecutionStatus
from mustit_pipeline.settings import Settings
from mustit_pipeline.store import task_counts
from mustit_pipeline.store.executions import StoredExecution
from mustit_pipeline.store.task_counts import TypeStanding

RECENT_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Outlook:
    """How the tasks of an execution stand, what it is doing, and when it should be done if that goes on."""

    standings: Sequence[TypeStanding]
    in_flight: int
    per_second: float
    doing: str
    done_at: datetime | None


def look(connection: Connection, settings: Settings, stored: StoredExecution, now: datetime) -> Outlook:
    """Work it out from the tasks and the pool; of one that has ended there is nothing to expect."""
    standings = task_counts.standings(connection, stored.home, RECENT_SECONDS)
    in_flight = sum(standing.in_progress for standing in standings)
    recent = sum(standing.recent for standing in standings)
    running_for = (now - (stored.execution.started_at or now)).total_seconds()
    per_second = recent / min(RECENT_SECONDS, max(running_for, 1.0))
    pool = roster.pool_status(connection, settings, now)
    doing = _doing(stored, pool, in_flight, now)
    done_at = None
    if stored.execution.status is ExecutionStatus.RUNNING:
        done_at = _done_at(settings, pool, stored.execution.remaining, per_second, now)
    return Outlook(standings, in_flight, per_second, doing, done_at)


def _doing(stored: StoredExecution, pool: PoolStatus, in_flight: int, now: datetime) -> str:
    status = stored.execution.status
    if status is ExecutionStatus.PENDING:
        return "waiting for a run that plans it"
    if status is ExecutionStatus.PAUSED:
        return "paused: nothing is sent until `mustit execution resume`"
    if status is not ExecutionStatus.RUNNING:
        return "ended"
    obstacle = _obstacle(pool, now)
    if in_flight:
        return "fetching" if obstacle is None else f"waiting: {obstacle}"
    if not stored.execution.remaining:
        return "everything is fetched; its change sets are being written"
    return "nobody works on it: the next slice starts soon" if obstacle is None else f"waiting: {obstacle}"


def _obstacle(pool: PoolStatus, now: datetime) -> str | None:
    if pool.host_paused_until is not None:
        return "the marketplace throttles everybody, calls pause"
    if pool.circuit == "open":
        return "the breaker is open, too few agents are available"
    if pool.next_free_at is None:
        return "no agent is available"
    return "every agent has used its requests" if pool.next_free_at > now + timedelta(seconds=5) else None


def _done_at(settings: Settings, pool: PoolStatus, remaining: int, per_second: float, now: datetime) -> datetime | None:
    """At the pace of the last minutes, or as fast as the limits let the pool be: whichever is later."""
    least = seconds_for(settings, pool, remaining, now)
    if least is None:
        return None
    pace = remaining / per_second if per_second else 0.0
    start = max(now, pool.host_paused_until or now, pool.circuit_open_until or now)
    return start + timedelta(seconds=max(least, pace))
