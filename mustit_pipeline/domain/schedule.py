"""When a seller is crawled next, and its EventBridge rule."""

import hashlib
import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from mustit_pipeline.domain.aggregate import Aggregate
from mustit_pipeline.domain.backoff import backoff_seconds
from mustit_pipeline.domain.states import SCHEDULE, ScheduleEventType, ScheduleStatus
from mustit_pipeline.domain.values import CrawlingInterval, ScheduleId, SellerId

RULE_PREFIX = "mustit-crawler-"
RULE_LENGTH = 64


def rule_name(seller_id: SellerId) -> str:
    """The EventBridge rule of a seller; an id that does not fit a rule name is replaced by its SHA-256."""
    name = f"{RULE_PREFIX}{seller_id}"
    if re.fullmatch(r"[.\-_A-Za-z0-9]+", name) and len(name) <= RULE_LENGTH:
        return name
    digest = hashlib.sha256(seller_id.value.encode()).hexdigest()
    return (RULE_PREFIX + digest)[:RULE_LENGTH]


@dataclass(frozen=True, slots=True)
class ScheduleEvent:
    """A change that has to be sent to EventBridge."""

    event_type: ScheduleEventType
    schedule_id: ScheduleId
    seller_id: SellerId
    rule_name: str
    expression: str
    occurred_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CrawlingSchedule(Aggregate):
    """One seller's schedule."""

    id: ScheduleId
    seller_id: SellerId
    interval: CrawlingInterval
    next_due_at: datetime
    last_triggered_at: datetime | None = None
    status: ScheduleStatus = ScheduleStatus.ACTIVE
    # Crawls in a row that could not be planned; they are retried before the interval is over.
    failed_plans: int = 0
    _events: list[ScheduleEvent] = field(default_factory=list[ScheduleEvent], init=False, repr=False)

    @classmethod
    def register(
        cls, schedule_id: ScheduleId, seller_id: SellerId, interval: CrawlingInterval, at: datetime
    ) -> "CrawlingSchedule":
        """A new schedule; its first crawl is due at once."""
        schedule = cls(id=schedule_id, seller_id=seller_id, interval=interval, next_due_at=at)
        schedule._emit(ScheduleEventType.SCHEDULE_REGISTERED, at)
        return schedule

    @property
    def rule_name(self) -> str:
        """The name of this schedule's rule."""
        return rule_name(self.seller_id)

    @property
    def expression(self) -> str:
        """The rate at which this schedule's rule fires."""
        return self.interval.expression

    def change_interval(self, interval: CrawlingInterval, at: datetime) -> None:
        """Count the new interval from the last crawl; a first or a retried crawl is not moved to later."""
        status = SCHEDULE.move(self.status, "change_interval")
        due = self.next_due_at if self.last_triggered_at is None else self.last_triggered_at + interval.timedelta
        if self.failed_plans:
            due = min(due, self.next_due_at)
        self._set(status=status, interval=interval, next_due_at=due)
        self._emit(ScheduleEventType.SCHEDULE_UPDATED, at)

    def activate(self, at: datetime) -> None:
        """Start again; the rule may never have been created, so it is registered anew."""
        self._set(status=SCHEDULE.move(self.status, "activate"))
        self._emit(ScheduleEventType.SCHEDULE_REGISTERED, at)

    def deactivate(self, at: datetime) -> None:
        """Crawl no more."""
        self._set(status=SCHEDULE.move(self.status, "deactivate"))
        self._emit(ScheduleEventType.SCHEDULE_DEACTIVATED, at)

    def resend(self, at: datetime, *, active: bool) -> None:
        """Send the state again; a schedule whose status does not match its seller's is changed to match."""
        if self.status in SCHEDULE.sources("activate") and active:
            self.activate(at)
        elif self.status in SCHEDULE.sources("deactivate") and not active:
            self.deactivate(at)
        else:
            kind = ScheduleEventType.SCHEDULE_REGISTERED if active else ScheduleEventType.SCHEDULE_DEACTIVATED
            self._emit(kind, at)

    def triggered(self, at: datetime) -> None:
        """A crawl started: the interval begins again now, so that missed times are caught up once."""
        self._set(last_triggered_at=at, next_due_at=at + self.interval.timedelta)

    def plan_failed(self, at: datetime, *, base: float, longest: float) -> None:
        """A crawl could not be planned: it is due again after a pause that doubles, up to one interval."""
        pause = timedelta(seconds=backoff_seconds(self.failed_plans + 1, base, longest, 0.0))
        self._set(failed_plans=self.failed_plans + 1, next_due_at=at + min(pause, self.interval.timedelta))

    def plan_settled(self) -> None:
        """The crawl is planned, or a retry would not help: the interval counts again, from the last crawl."""
        if not self.failed_plans:
            return
        due = self.next_due_at if self.last_triggered_at is None else self.last_triggered_at + self.interval.timedelta
        self._set(failed_plans=0, next_due_at=max(due, self.next_due_at))

    def pull_events(self) -> tuple[ScheduleEvent, ...]:
        """The events since the last call; each is returned once."""
        events = tuple(self._events)
        self._events.clear()
        return events

    def _emit(self, event_type: ScheduleEventType, at: datetime) -> None:
        event = ScheduleEvent(event_type, self.id, self.seller_id, self.rule_name, self.expression, at)
        self._events.append(event)
