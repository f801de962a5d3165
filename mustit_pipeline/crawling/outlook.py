"""What an execution is doing at this moment, and when it will be done."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from sqlalchemy import Connection

from mustit_pipeline.agents import roster
from mustit_pipeline.agents.roster import PoolStatus
from mustit_pipeline.crawling.pace import at_best, held_for
from mustit_pipeline.crawling.planning import expected_tasks
from mustit_pipeline.crawling.sql import tasks
from mustit_pipeline.crawling.sql.executions import StoredExecution
from mustit_pipeline.crawling.sql.tasks import TypeStanding
from mustit_pipeline.domain.states import ExecutionStatus
from mustit_pipeline.settings import Settings

RECENT_SECONDS = 300.0
# A run that follows on another is there within seconds.
IDLE_SECONDS = 60.0
# How long a crawl has been trying before it is said to lack a session.
SESSION_SECONDS = 5.0
NO_SESSION = "no agent has a session token"
SEOUL = ZoneInfo("Asia/Seoul")


@dataclass(frozen=True, slots=True)
class Outlook:
    """How the tasks of an execution stand, what it is doing, and when it should be done if that goes on.

    `waits_for` is what keeps every worker from sending its requests.
    """

    standings: Sequence[TypeStanding]
    expected_tasks: int
    in_progress: int
    per_second: float
    doing: str
    waits_for: str | None
    done_at: datetime | None


@dataclass(frozen=True, slots=True)
class _View:
    """Everything that an outlook is judged by."""

    settings: Settings
    stored: StoredExecution
    pool: PoolStatus
    standings: Sequence[TypeStanding]
    expected: int
    now: datetime

    @property
    def in_progress(self) -> int:
        return sum(standing.in_progress for standing in self.standings)

    @property
    def left(self) -> int:
        execution = self.stored.execution
        return self.expected - execution.completed_tasks - execution.failed_tasks

    @property
    def running_for(self) -> float:
        execution = self.stored.execution
        return max(1.0, (self.now - (execution.started_at or execution.created_at)).total_seconds())

    @property
    def idle_for(self) -> float:
        return 0.0 if self.in_progress else (self.now - self.stored.updated_at).total_seconds()

    @property
    def per_second(self) -> float:
        return sum(standing.recent for standing in self.standings) / min(RECENT_SECONDS, self.running_for)

    @property
    def lacks_session(self) -> bool:
        # A crawl that has just begun, or whose agents just renew theirs, has none for a moment either.
        return without_session(self.pool) and not self.per_second and self.running_for > SESSION_SECONDS

    @property
    def waits_for(self) -> str | None:
        obstacle = _obstacle(self.settings, self.pool, self.now)
        return f"{NO_SESSION}, the marketplace issues none" if obstacle is None and self.lacks_session else obstacle


def look(connection: Connection, settings: Settings, stored: StoredExecution, now: datetime) -> Outlook:
    """Work it out from the tasks and the pool; of one that has ended there is nothing to expect."""
    standings = tasks.standings(
        connection, stored.home, recent_seconds=RECENT_SECONDS, window_seconds=settings.window_seconds
    )
    execution = stored.execution
    expected = expected_tasks(stored, settings.page_size) if execution.is_open else execution.total_tasks
    view = _View(settings, stored, roster.pool_status(connection, settings, now), standings, expected, now)
    doing = _doing(connection, view)
    done_at = _done_at(connection, view) if execution.status is ExecutionStatus.RUNNING else None
    return Outlook(standings, expected, view.in_progress, view.per_second, doing, view.waits_for, done_at)


def used_up(settings: Settings, pool: PoolStatus) -> bool:
    """Whether the agents have used their requests, and are not merely busy for a moment."""
    return pool.used_in_window >= pool.available * settings.requests_per_hour


def without_session(pool: PoolStatus) -> bool:
    """Whether agents could be had, but none of them can send anything before it gets a token."""
    return pool.available > 0 and not pool.with_token


def _doing(connection: Connection, view: _View) -> str:
    status = view.stored.status
    obstacle = _obstacle(view.settings, view.pool, view.now)
    if status is ExecutionStatus.PENDING:
        return "waiting for a run that plans it" if obstacle is None else f"waiting: {obstacle}"
    if status is ExecutionStatus.PAUSED:
        return "paused: nothing is sent until `mustit execution resume`"
    if status is not ExecutionStatus.RUNNING:
        return "ended"
    if view.stored.is_swept and not view.left:
        return "everything is fetched; its change sets are being written"
    if obstacle is not None:
        return f"waiting: {obstacle}"
    if not view.in_progress:
        return _idle(connection, view)
    return f"waiting: {NO_SESSION}" if view.lacks_session else "fetching"


def _idle(connection: Connection, view: _View) -> str:
    """Why nobody works on an execution although agents could be had."""
    retry_in = tasks.open_work(connection, view.stored.home).next_in
    if retry_in > 0:
        return f"resting: what is left has failed before and is tried again in {retry_in:.0f} s"
    if view.idle_for < IDLE_SECONDS:
        return "nobody works on it: the next slice starts soon"
    if view.lacks_session:
        # Whoever tries to get one holds a task for moments only: a look may fall between them.
        return (
            f"nothing has ended for {view.idle_for / 60:.0f} min and {NO_SESSION}: "
            f"see `mustit agents status` and the sensor `due_crawls`"
        )
    return f"nobody has worked on it for {view.idle_for / 60:.0f} min: see the sensor `due_crawls`"


def _obstacle(settings: Settings, pool: PoolStatus, now: datetime) -> str | None:
    if pool.host_paused_until is not None:
        return f"the marketplace throttles everybody, calls pause{_until(pool.host_paused_until, now)}"
    if not pool.available:
        return f"no agent is available{_until(pool.next_recovery_at, now)}"
    if pool.circuit == "open":
        return f"the breaker is open{_until(pool.circuit_open_until, now)}, too few agents are available"
    if pool.circuit == "half-open":
        return "the breaker is half-open, a trial request decides"
    if used_up(settings, pool):
        return f"every agent has used its requests{_until(pool.next_free_at, now)}"
    return None


def _until(moment: datetime | None, now: datetime) -> str:
    """When that is over, by the clock in Seoul, where it is known."""
    if moment is None or moment <= now:
        return ""
    local = moment.astimezone(SEOUL)
    same_day = local.date() == now.astimezone(SEOUL).date()
    return f" until {local:%H:%M:%S}" if same_day else f" until {local:%Y-%m-%d %H:%M}"


def _done_at(connection: Connection, view: _View) -> datetime | None:
    """As fast as the limits let the pool be, or at its own pace: whichever is later; None where nothing ends."""
    stands_still = view.idle_for >= IDLE_SECONDS or not view.per_second
    if stands_still and _obstacle(view.settings, view.pool, view.now) is None:
        return None
    least = at_best(connection, view.settings, view.pool, view.left, view.now)
    if least is None:
        return None
    if not view.stored.is_swept:
        # Listing pages are few and slow: their pace says nothing about the products.
        return view.now + timedelta(seconds=least)
    # A pool that sends a window's requests at once and then waits is slow for most minutes, but not over a window.
    in_window = sum(standing.in_window for standing in view.standings)
    pace = max(view.per_second, in_window / min(view.settings.window_seconds, view.running_for))
    at_its_pace = held_for(view.pool, view.now) + view.left / pace if pace else 0.0
    return view.now + timedelta(seconds=max(least, at_its_pace))
