"""The present activity of an execution, and when it should end."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo

from sqlalchemy import Connection

from mustit_pipeline.agents import roster
from mustit_pipeline.agents.roster import PoolStatus
from mustit_pipeline.crawling.pace import at_best, held_for
from mustit_pipeline.crawling.planning import expected_tasks
from mustit_pipeline.crawling.recrawl import expected_choices
from mustit_pipeline.crawling.sql import tasks
from mustit_pipeline.crawling.sql.executions import StoredExecution
from mustit_pipeline.crawling.sql.tasks import TypeStanding
from mustit_pipeline.domain.states import ExecutionStatus
from mustit_pipeline.settings import Settings

RECENT_SECONDS = 300.0
# The next slice's run starts within seconds.
IDLE_SECONDS = 60.0
# How long a crawl has to be running before a missing session is reported.
SESSION_SECONDS = 5.0
NO_SESSION = "no agent has a session token"
SEOUL = ZoneInfo("Asia/Seoul")


class Activity(StrEnum):
    """What an execution is doing, or what it waits for."""

    UNPLANNED = "UNPLANNED"
    PAUSED = "PAUSED"
    ENDED = "ENDED"
    FETCHING = "FETCHING"
    PUBLISHING = "PUBLISHING"
    THROTTLED = "THROTTLED"
    NO_AGENT = "NO_AGENT"
    BREAKER_OPEN = "BREAKER_OPEN"
    BREAKER_TRIAL = "BREAKER_TRIAL"
    USED_UP = "USED_UP"
    NO_SESSION = "NO_SESSION"
    RETRYING = "RETRYING"
    NEXT_SLICE = "NEXT_SLICE"
    NO_WORKER = "NO_WORKER"
    NO_WORKER_NO_SESSION = "NO_WORKER_NO_SESSION"


@dataclass(frozen=True, slots=True)
class Doing:
    """An activity; with the end of its wait or its length so far where these are known."""

    activity: Activity
    text: str
    until: datetime | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Forecast:
    """The state of an execution's tasks, its activity, and when it should end at this pace.

    `waits_for` is the reason why no worker can send requests.
    """

    standings: Sequence[TypeStanding]
    expected_tasks: int
    # While the listing is read: what its products will take is not planned yet.
    is_estimate: bool
    in_progress: int
    per_second: float
    activity: Doing
    waits_for: str | None
    done_at: datetime | None

    @property
    def doing(self) -> str:
        """The activity in one line."""
        return self.activity.text


@dataclass(frozen=True, slots=True)
class _View:
    """The data behind a forecast."""

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
        # Not for a crawl that has just started, or whose agents are renewing their tokens.
        return without_session(self.pool) and not self.per_second and self.running_for > SESSION_SECONDS

    @property
    def waits_for(self) -> str | None:
        obstacle = _obstacle(self.settings, self.pool, self.now)
        if obstacle is not None:
            return obstacle.text
        return f"{NO_SESSION}, the marketplace issues none" if self.lacks_session else None


def look(connection: Connection, settings: Settings, stored: StoredExecution, now: datetime) -> Forecast:
    """The forecast from tasks and pool; an ended execution has no expected end."""
    standings = tasks.standings(
        connection, stored.home, recent_seconds=RECENT_SECONDS, window_seconds=settings.window_seconds
    )
    execution = stored.execution
    chosen = expected_choices(connection, settings, stored, now) if execution.is_open else None
    ahead = expected_tasks(stored, settings.page_size, chosen=chosen)
    expected = ahead if execution.is_open else execution.total_tasks
    view = _View(settings, stored, roster.pool_status(connection, settings, now), standings, expected, now)
    doing = _doing(connection, view)
    done_at = _done_at(connection, view) if execution.status is ExecutionStatus.RUNNING else None
    estimated = execution.is_open and stored.listed_count is not None and not stored.is_swept
    return Forecast(standings, expected, estimated, view.in_progress, view.per_second, doing, view.waits_for, done_at)


def used_up(settings: Settings, pool: PoolStatus) -> bool:
    """Whether the agents have used all requests of the window, not only a short gap."""
    return pool.used_in_window >= pool.available * settings.requests_per_hour


def without_session(pool: PoolStatus) -> bool:
    """Whether agents are available, but none of them has a token."""
    return pool.available > 0 and not pool.with_token


def _doing(connection: Connection, view: _View) -> Doing:
    status = view.stored.status
    obstacle = _obstacle(view.settings, view.pool, view.now)
    waiting = None if obstacle is None else replace(obstacle, text=f"waiting: {obstacle.text}")
    if status is ExecutionStatus.PENDING:
        return waiting or Doing(Activity.UNPLANNED, "waiting for a run that plans it")
    if status is ExecutionStatus.PAUSED:
        return Doing(Activity.PAUSED, "paused: nothing is sent until `mustit execution resume`")
    if status is not ExecutionStatus.RUNNING:
        return Doing(Activity.ENDED, "ended")
    if view.stored.is_swept and not view.left:
        return Doing(Activity.PUBLISHING, "everything is fetched; its change sets are being written")
    if waiting is not None:
        return waiting
    if not view.in_progress:
        return _idle(connection, view)
    if view.lacks_session:
        return Doing(Activity.NO_SESSION, f"waiting: {NO_SESSION}")
    return Doing(Activity.FETCHING, "fetching")


def _idle(connection: Connection, view: _View) -> Doing:
    """Why no worker has a task of the execution although agents are available."""
    retry_in = tasks.open_work(connection, view.stored.home).next_in
    if retry_in > 0:
        text = f"waiting: the tasks left have failed before and are retried in {retry_in:.0f} s"
        return Doing(Activity.RETRYING, text, seconds=retry_in)
    if view.idle_for < IDLE_SECONDS:
        return Doing(Activity.NEXT_SLICE, "no worker is on it: the next slice starts soon")
    minutes = f"{view.idle_for / 60:.0f} min"
    if view.lacks_session:
        # A worker that asks for a token holds its task only briefly, so none may be in progress at this moment.
        what = f"nothing has ended for {minutes} and {NO_SESSION}"
        text = f"{what}: see `mustit agents status` and the sensor `due_crawls`"
        return Doing(Activity.NO_WORKER_NO_SESSION, text, seconds=view.idle_for)
    text = f"no worker has been on it for {minutes}: see the sensor `due_crawls`"
    return Doing(Activity.NO_WORKER, text, seconds=view.idle_for)


def _obstacle(settings: Settings, pool: PoolStatus, now: datetime) -> Doing | None:
    if pool.host_paused_until is not None:
        until = pool.host_paused_until
        text = f"the marketplace throttles all agents, calls pause{_until(until, now)}"
        return Doing(Activity.THROTTLED, text, until)
    if not pool.available:
        until = pool.next_recovery_at
        return Doing(Activity.NO_AGENT, f"no agent is available{_until(until, now)}", until)
    if pool.circuit == "open":
        until = pool.circuit_open_until
        text = f"the breaker is open{_until(until, now)}, too few agents are available"
        return Doing(Activity.BREAKER_OPEN, text, until)
    if pool.circuit == "half-open":
        return Doing(Activity.BREAKER_TRIAL, "the breaker is half-open, a trial request decides")
    if used_up(settings, pool):
        until = pool.next_free_at
        return Doing(Activity.USED_UP, f"every agent has used its requests{_until(until, now)}", until)
    return None


def _until(moment: datetime | None, now: datetime) -> str:
    """The end of a wait in Seoul time; empty if unknown."""
    if moment is None or moment <= now:
        return ""
    local = moment.astimezone(SEOUL)
    same_day = local.date() == now.astimezone(SEOUL).date()
    return f" until {local:%H:%M:%S}" if same_day else f" until {local:%Y-%m-%d %H:%M}"


def _done_at(connection: Connection, view: _View) -> datetime | None:
    """The later of two estimates: by the pool's limits, and by its present pace. None if no progress is expected."""
    stands_still = view.idle_for >= IDLE_SECONDS or not view.per_second
    if stands_still and _obstacle(view.settings, view.pool, view.now) is None:
        return None
    least = at_best(connection, view.settings, view.pool, view.left, view.now)
    if least is None:
        return None
    if not view.stored.is_swept:
        # Listing pages are few and slow: their pace does not predict that of the products.
        return view.now + timedelta(seconds=least)
    # A pool that sends a window's requests at once and then waits looks slow in most minutes, but not over a window.
    in_window = sum(standing.in_window for standing in view.standings)
    pace = max(view.per_second, in_window / min(view.settings.window_seconds, view.running_for))
    at_its_pace = held_for(view.pool, view.now) + view.left / pace if pace else 0.0
    return view.now + timedelta(seconds=max(least, at_its_pace))
