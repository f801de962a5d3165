"""The progress of a crawl with an honest end: what it does, what it waits for, and when it should be done."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from mustit_pipeline.console.formats import Formats
from mustit_pipeline.console.languages import marked
from mustit_pipeline.console.visits import Visit
from mustit_pipeline.crawling import forecast
from mustit_pipeline.crawling.forecast import Activity, Doing, Forecast
from mustit_pipeline.crawling.sql.executions import StoredExecution
from mustit_pipeline.foundation.clock import utc_now

TEXTS = {
    Activity.UNPLANNED: marked("Waiting for a run that plans it"),
    Activity.PAUSED: marked("Paused: nothing is sent until it is resumed"),
    Activity.ENDED: marked("Ended"),
    Activity.FETCHING: marked("Fetching"),
    Activity.PUBLISHING: marked("Everything is fetched; the changes are being written"),
    Activity.THROTTLED: marked("Waiting: the marketplace throttles all agents"),
    Activity.NO_AGENT: marked("Waiting: no agent is available"),
    Activity.BREAKER_OPEN: marked("Waiting: the breaker is open, too few agents are available"),
    Activity.BREAKER_TRIAL: marked("Waiting: the breaker is half-open, a trial request decides"),
    Activity.USED_UP: marked("Waiting: every agent has used its requests"),
    Activity.NO_SESSION: marked("Waiting: no agent has a session token"),
    Activity.RETRYING: marked("Waiting: the tasks left have failed before and are retried soon"),
    Activity.NEXT_SLICE: marked("No worker is on it: the next slice starts soon"),
    Activity.NO_WORKER: marked("No worker has been on it for %(time)s: see the sensor due_crawls in Dagster"),
    Activity.NO_WORKER_NO_SESSION: marked(
        "Nothing has ended for %(time)s and no agent has a session token: see the agents"
    ),
}
TROUBLES = {
    Activity.THROTTLED,
    Activity.NO_AGENT,
    Activity.BREAKER_OPEN,
    Activity.NO_SESSION,
    Activity.NO_WORKER,
    Activity.NO_WORKER_NO_SESSION,
}


@dataclass(frozen=True, slots=True)
class Progress:
    """An execution and its forecast, for a page."""

    stored: StoredExecution
    ahead: Forecast
    doing: str
    until: datetime | None
    is_trouble: bool

    @property
    def ended(self) -> int:
        return self.stored.ended_tasks

    @property
    def share(self) -> float:
        """Percent of the tasks that are expected in all."""
        return 100 * self.ended / self.ahead.expected_tasks if self.ahead.expected_tasks else 0.0

    @property
    def is_estimate(self) -> bool:
        """Whether the tasks of its products are not planned yet."""
        return self.ahead.is_estimate


def progress_of(connection: Connection, visit: Visit, stored: StoredExecution) -> Progress:
    """The progress of an execution now."""
    ahead = forecast.look(connection, visit.settings, stored, utc_now())
    doing = ahead.activity
    return Progress(stored, ahead, _text(visit, doing), doing.until, doing.activity in TROUBLES)


def _text(visit: Visit, doing: Doing) -> str:
    text = TEXTS[doing.activity]
    if "%(time)s" in text:
        return visit.say(text, time=Formats(visit.language).duration(doing.seconds))
    return visit.say(text)
