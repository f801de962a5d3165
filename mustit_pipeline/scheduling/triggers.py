"""Messages that ask for crawls: each is stored once, parked if it cannot be carried out, then deleted."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from sqlalchemy import Connection

from mustit_pipeline.aws.trigger_queue import Delivery, TriggerQueue
from mustit_pipeline.crawling.sql import executions
from mustit_pipeline.crawling.steering import open_or_join_within
from mustit_pipeline.domain.errors import Conflict, NotFound
from mustit_pipeline.domain.states import ExecutionStatus
from mustit_pipeline.domain.trigger import ParkReason, asked_seller
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.scheduling.sql import triggers
from mustit_pipeline.sellers.sql import sellers
from mustit_pipeline.settings import Settings

TRIGGERED_BY = "sqs"


class Outcome(StrEnum):
    """The result of a message, as the tick shows it."""

    OPENED = "crawls due"
    JOINED = "joined an open crawl"
    JOINED_PAUSED = "joined a PAUSED crawl, which waits to be resumed"
    SERVED = "answered by a crawl that began since they were sent"
    REPEATED = "had come before"
    PARKED = "parked"


@dataclass(slots=True)
class Taken:
    """The result of reading the queue."""

    outcomes: Counter[Outcome] = field(default_factory=Counter[Outcome])
    parked: Counter[ParkReason] = field(default_factory=Counter[ParkReason])
    undeleted: Counter[str] = field(default_factory=Counter[str])
    # Whether reading stopped before the queue was empty.
    more: bool = False

    @property
    def messages(self) -> int:
        return self.outcomes.total()

    def __str__(self) -> str:
        if not self.messages:
            return "no message waits"
        parts = [f"{self.outcomes[outcome]} {outcome}" for outcome in Outcome if self.outcomes[outcome]]
        text = f"{self.messages} messages: {', '.join(parts)}"
        if self.parked:
            text += f" ({_listed(self.parked)})"
        if self.undeleted:
            text += f"; {self.undeleted.total()} could not be deleted and come again ({_listed(self.undeleted)})"
        return f"{text}; the next tick goes on" if self.more else text


def take_triggers(database: Database, settings: Settings, queue: TriggerQueue, clock: Callable[[], datetime]) -> Taken:
    """Take messages until none waits, or a tick's number or time is used up.

    A message is deleted after its request is stored. If the process dies in between, SQS delivers the message again; it
    is recognised and only deleted.
    """
    taken, end = Taken(), time.monotonic() + settings.trigger_tick_seconds
    while deliveries := queue.receive(settings.trigger_tick_messages - taken.messages):
        for delivery in deliveries:
            outcome = _store(database, queue.url, delivery, clock())
            if isinstance(outcome, ParkReason):
                taken.parked[outcome] += 1
                outcome = Outcome.PARKED
            taken.outcomes[outcome] += 1
        taken.undeleted.update(queue.delete(deliveries).values())
        if taken.messages >= settings.trigger_tick_messages or time.monotonic() >= end:
            taken.more = True
            break
    return taken


def _store(database: Database, queue: str, delivery: Delivery, now: datetime) -> Outcome | ParkReason:
    """Store a message and its result in one transaction; a known message changes nothing."""
    asked = asked_seller(delivery.body)
    with database.transaction() as connection:
        if not triggers.remember(connection, queue, delivery.message_id, now):
            return Outcome.REPEATED
        if isinstance(asked, SellerId):
            try:
                if _is_served(connection, asked, delivery.sent_at):
                    return Outcome.SERVED
                opened = open_or_join_within(connection, asked, triggered_by=TRIGGERED_BY, now=now)
            except NotFound:
                asked = ParkReason.UNKNOWN_SELLER
            except Conflict:
                asked = ParkReason.INACTIVE_SELLER
            else:
                execution = opened.stored.execution
                triggers.record_opened(connection, queue, delivery.message_id, execution.id)
                if not opened.joined:
                    return Outcome.OPENED
                return Outcome.JOINED_PAUSED if execution.status is ExecutionStatus.PAUSED else Outcome.JOINED
        triggers.park(connection, queue, delivery.message_id, asked, delivery.body)
        return asked


def _is_served(connection: Connection, seller_id: SellerId, sent_at: datetime | None) -> bool:
    """Whether a crawl has begun and ended since: a seller with several old messages is crawled once."""
    _, schedule = sellers.get(connection, seller_id, lock=True)
    began = schedule.last_triggered_at
    if sent_at is None or began is None or began < sent_at:
        return False
    return executions.find_open(connection, seller_id) is None


def _listed(counts: Counter[ParkReason] | Counter[str]) -> str:
    return ", ".join(f"{number} {name}" for name, number in counts.items())
