"""Opens alerts for present problems, and ends the alerts of problems that are over."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog
from sqlalchemy import Connection

from mustit_pipeline.aws.clients import AwsRefused, AwsUnreachable
from mustit_pipeline.crawling import dead_letters
from mustit_pipeline.delivery.sql import breakers
from mustit_pipeline.delivery.sql.breakers import PRODUCT_SERVER
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.monitoring import alert_texts as texts
from mustit_pipeline.monitoring.sql import alerts, health
from mustit_pipeline.monitoring.sql.alerts import Condition, Outcome
from mustit_pipeline.scheduling.sql import triggers
from mustit_pipeline.settings import Settings

RUN_FAILED = "RUN_FAILED"
CHECK_FAILED = "CHECK_FAILED"
TICK_FAILED = "TICK_FAILED"
HELD_DELETIONS = "HELD_DELETIONS"
HELD_CHANGES = "HELD_CHANGES"
INCOMPLETE_SWEEP = "INCOMPLETE_SWEEP"
BREAKER_OPEN = "BREAKER_OPEN"
CREDENTIAL_REFUSED = "CREDENTIAL_REFUSED"
THROTTLED = "THROTTLED"
FAILED_EVENTS = "FAILED_EVENTS"
SCHEDULE_FAILED = "SCHEDULE_FAILED"
PARKED_MESSAGES = "PARKED_MESSAGES"
DEAD_LETTERS = "DEAD_LETTERS"
# Before a seller's id: an alert of any job of the seller ends with the seller's next successful run.
RUN_OF_SELLER = "run of seller "
# Kinds that are always checked completely: an alert of such a kind that is not found again is over.
STATES = (
    HELD_DELETIONS,
    HELD_CHANGES,
    INCOMPLETE_SWEEP,
    BREAKER_OPEN,
    CREDENTIAL_REFUSED,
    THROTTLED,
    FAILED_EVENTS,
    SCHEDULE_FAILED,
    PARKED_MESSAGES,
    TICK_FAILED,
)
STORM_MEMORY = timedelta(minutes=5)
# If the newest sweep is a week old, no sweep followed it: another alert reports that.
SWEEP_MEMORY = timedelta(days=7)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Alerted:
    """The numbers of alerts that were opened and that ended."""

    opened: int = 0
    ended: int = 0


def observe(database: Database, settings: Settings, now: datetime, *, others: Sequence[Condition] = ()) -> Alerted:
    """Check every state and open or end its alerts, one per subject; `others` are problems that the caller found."""
    dead = _dead_letters(settings)
    with database.reading() as connection:
        found = {one.subject: one for one in (*_found(connection, now), *(dead or ()), *others)}
    judged = STATES if dead is None else (*STATES, DEAD_LETTERS)
    unseen_since = now - timedelta(seconds=settings.alert_calm_seconds)
    with database.transaction() as connection:
        alerts.lock_open(connection)
        opened = alerts.see(connection, [(one, now) for one in found.values()], now)
        ended = alerts.end_unseen(connection, judged, found, now, unseen_since)
    return Alerted(opened, ended)


def record(database: Database, outcomes: Iterable[Outcome], now: datetime) -> Alerted:
    """Open alerts for failures and end those of successes, by the newest of each subject."""
    failed: dict[str, tuple[Condition, datetime]] = {}
    healed: dict[str, Outcome] = {}
    for one in sorted(outcomes, key=lambda outcome: outcome.at):
        if one.failure is None:
            healed[one.subject] = one
        else:
            failed[one.subject] = one.failure, one.at
    with database.transaction() as connection:
        alerts.lock_open(connection)
        opened = alerts.see(connection, list(failed.values()), now)
        ended = alerts.end_healed(connection, list(healed.values()), now)
    return Alerted(opened, ended)


def let_go(database: Database, now: datetime) -> Alerted:
    """End the alerts of failed runs of inactive sellers: no successful run would end them."""
    with database.transaction() as connection:
        subjects = health.alerts_of_inactive_sellers(connection, RUN_FAILED, RUN_OF_SELLER)
        alerts.lock_open(connection)
        ended = alerts.end_healed(connection, [Outcome(one, RUN_FAILED, now, None) for one in subjects], now)
    return Alerted(ended=ended)


def _found(connection: Connection, now: datetime) -> Iterable[Condition]:
    for hold in health.held_deletions(connection):
        yield Condition(
            f"held deletions of {hold.seller_id}",
            HELD_DELETIONS,
            texts.HELD_DELETIONS.say(number=hold.number, seller=hold.seller_id),
            texts.HELD_DELETIONS_DETAIL.say(number=hold.number, of=hold.of),
        )
    for hold in health.held_changes(connection):
        yield Condition(
            f"held changes of {hold.seller_id}",
            HELD_CHANGES,
            texts.HELD_CHANGES.say(seller=hold.seller_id),
            texts.HELD_CHANGES_DETAIL.say(number=hold.number, of=hold.of, seller=hold.seller_id),
        )
    for seller_id in health.incomplete_sweeps(connection, now - SWEEP_MEMORY):
        yield Condition(
            f"incomplete sweep of {seller_id}",
            INCOMPLETE_SWEEP,
            texts.INCOMPLETE_SWEEP.say(seller=seller_id),
            texts.INCOMPLETE_SWEEP_DETAIL.say(seller=seller_id),
        )
    yield from _throttling(connection, now)
    failed = health.failed_events(connection)
    if failed:
        yield Condition(
            "failed events",
            FAILED_EVENTS,
            texts.FAILED_EVENTS.say(number=failed),
            texts.FAILED_EVENTS_DETAIL.english,
        )
    for seller_id in health.failed_schedules(connection):
        yield Condition(
            f"schedule of {seller_id}",
            SCHEDULE_FAILED,
            texts.SCHEDULE_FAILED.say(seller=seller_id),
            texts.SCHEDULE_FAILED_DETAIL.english,
        )
    parked = triggers.parked(connection)
    if parked:
        reasons = ", ".join(f"{number} {reason}" for reason, number in parked.items())
        yield Condition(
            "parked messages",
            PARKED_MESSAGES,
            texts.PARKED_MESSAGES.say(number=sum(parked.values())),
            texts.PARKED_MESSAGES_DETAIL.say(reasons=reasons),
        )


def _dead_letters(settings: Settings) -> Sequence[Condition] | None:
    """What SQS has parked; None if SQS does not answer: whatever was found before may still be there."""
    try:
        depths = dead_letters.depths(settings)
    except (AwsRefused, AwsUnreachable) as error:
        log.warning("the depth of the dead-letter queue is not known", error=error.english)
        return None
    if depths is None or not depths.dead:
        return ()
    return (
        Condition(
            "dead letters",
            DEAD_LETTERS,
            texts.DEAD_LETTERS.say(number=depths.dead),
            texts.DEAD_LETTERS_DETAIL.english,
        ),
    )


def _throttling(connection: Connection, now: datetime) -> Iterable[Condition]:
    pool = health.pool(connection)
    if pool.breaker_open_until is not None:
        yield Condition(
            "breaker of the marketplace",
            BREAKER_OPEN,
            texts.BREAKER_OPEN.english,
            texts.BREAKER_OPEN_DETAIL.english,
        )
    if pool.paused_until is not None and pool.paused_until > now - STORM_MEMORY:
        yield Condition(
            "storm of the marketplace",
            THROTTLED,
            texts.THROTTLED.english,
            texts.THROTTLED_DETAIL.english,
        )
    product_server = breakers.find(connection, PRODUCT_SERVER)
    if product_server.refused_credential is not None:
        yield Condition(
            "token of the product server",
            CREDENTIAL_REFUSED,
            texts.CREDENTIAL_REFUSED.english,
            texts.CREDENTIAL_REFUSED_DETAIL.english,
        )
    elif product_server.trial_in is not None:
        yield Condition(
            "breaker of the product server",
            BREAKER_OPEN,
            texts.UNREACHABLE.english,
            texts.UNREACHABLE_DETAIL.english,
        )
