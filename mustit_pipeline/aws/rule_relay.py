"""Relay of schedule changes to EventBridge: one in flight per schedule, several tries, the newest change last."""

import os
import random
import socket
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from uuid import uuid4

from mustit_pipeline.aws.clients import AwsRefused, AwsUnreachable
from mustit_pipeline.aws.rules import EventBridge, Rule
from mustit_pipeline.domain.backoff import backoff_seconds
from mustit_pipeline.domain.outbox import SchedulerOutbox
from mustit_pipeline.domain.states import OutboxStatus
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.sellers import registry
from mustit_pipeline.sellers.sql import scheduler_outbox
from mustit_pipeline.sellers.sql.scheduler_outbox import ClaimedChange
from mustit_pipeline.settings import Settings, SettingsError

# Most failures concern the whole account: they should not cost every schedule a try.
FAILURES_IN_A_ROW = 3
# These concern one rule: the next schedule's change may succeed.
OF_ONE_RULE = {"LimitExceededException", "ManagedRuleException", "ValidationException"}
# Five tries at the usual pauses are over in half a minute; an outage of some minutes should fail no schedule.
SLOWER = 30


@dataclass(slots=True)
class RelayedRules:
    """The result of a relay."""

    applied: int = 0
    retried: int = 0
    failed: int = 0
    waiting: int = 0
    last_error: str | None = None

    def count(self, row: SchedulerOutbox, *, ours: bool) -> None:
        """Count a tried change; if the claim was lost, only its error is kept."""
        self.last_error = row.last_error or self.last_error
        if ours:
            self.applied += row.status is OutboxStatus.COMPLETED
            self.retried += row.status is OutboxStatus.WAITING
            self.failed += row.status is OutboxStatus.FAILED

    def __str__(self) -> str:
        text = f"{self.applied} rules applied, {self.failed} given up, {self.waiting} wait"
        return text if self.last_error is None else f"{text}; last failure: {self.last_error}"


def relay_rules(database: Database, settings: Settings, clock: Callable[[], datetime]) -> RelayedRules:
    """Send every due change to EventBridge."""
    if settings.trigger_target_arn is None:
        raise SettingsError(
            "MUSTIT_TRIGGER_TARGET_ARN is not set: rules need a target",
            korean="MUSTIT_TRIGGER_TARGET_ARN이 설정되지 않았습니다. 규칙에는 대상이 필요합니다",
        )
    bridge, owner = EventBridge(settings), f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"
    relayed, in_a_row = RelayedRules(), 0
    with database.transaction() as connection:
        scheduler_outbox.release_expired(connection)
        scheduler_outbox.supersede(connection)
    while in_a_row < FAILURES_IN_A_ROW and (change := _claim(database, settings, owner)) is not None:
        error = _apply(bridge, change, settings.trigger_target_arn)
        if error is None:
            in_a_row = 0
        elif not (isinstance(error, AwsRefused) and error.answer in OF_ONE_RULE):
            in_a_row += 1
        ours = _settle(database, settings, change, error and error.english, clock())
        relayed.count(change.outbox, ours=ours)
    with database.reading() as connection:
        relayed.waiting = scheduler_outbox.counts(connection).waiting
    return relayed


def _claim(database: Database, settings: Settings, owner: str) -> ClaimedChange | None:
    with database.transaction() as connection:
        return scheduler_outbox.claim(
            connection,
            owner=owner,
            lease_seconds=settings.relay_lease_seconds,
            max_retries=settings.outbox_max_retries,
        )


def _apply(bridge: EventBridge, change: ClaimedChange, target_arn: str) -> AwsRefused | AwsUnreachable | None:
    """Do what a change says; says why it could not be done."""
    row = change.outbox
    row.address(target_arn)
    try:
        bridge.apply(row.event_type, Rule.of(row))
    except (AwsRefused, AwsUnreachable) as error:
        return error
    return None


def _settle(database: Database, settings: Settings, change: ClaimedChange, error: str | None, now: datetime) -> bool:
    """Store the result of a change; False if another relay took the expired claim."""
    row, delay = change.outbox, 0.0
    if error is None:
        row.complete(now)
    else:
        row.fail(error)
    if row.can_retry():
        row.retry()
        base = settings.retry_base_seconds * SLOWER
        delay = backoff_seconds(row.retry_count, base, settings.relay_longest_backoff_seconds, random.random())
    with database.transaction() as connection:
        ours = scheduler_outbox.settle(connection, change, delay)
    if not ours:
        # Our call may have come after the other relay's, with an outdated change: send the present one again.
        registry.resend(database, now, row.schedule_id)
    return ours
