"""The findings of `mustit doctor` from checks, holds, queues and alerts."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from mustit_pipeline.aws.clients import AwsRefused, AwsUnreachable
from mustit_pipeline.crawling import dead_letters
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.monitoring.criteria import CRITERIA
from mustit_pipeline.monitoring.sql import alerts, health
from mustit_pipeline.scheduling.sql import triggers
from mustit_pipeline.sellers.sql import scheduler_outbox
from mustit_pipeline.settings import Settings
from mustit_pipeline.upkeep.recovery import unprocessed

SHOWN = 5
UNHEALED_SECONDS = 300.0
# Three backfills, one run of housekeeping, a relay and a recovery.
PLACES_BESIDE_CRAWLS = 6
# Checks that have their own finding.
SAID_ALREADY = {"schema_drift", "no_failed_events", "fetch_p95"}


class Health(StrEnum):
    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One checked thing; a problem comes with its remedy."""

    subject: str
    health: Health
    detail: str
    remedy: str = ""


def verdict(findings: Sequence[Finding]) -> str:
    """All findings in one line; good news only if there is neither a problem nor a warning."""
    of = Counter(finding.health for finding in findings)
    problems, warnings = of[Health.PROBLEM], of[Health.WARNING]
    return f"{problems} problems, {warnings} warnings." if problems or warnings else "Everything is well."


def watched(settings: Settings, database: Database) -> Iterator[Finding]:
    """The findings of monitoring, computed now."""
    yield _held_changes(database)
    yield from _unprocessed(database)
    yield from _places(settings)
    yield from _rules(settings, database)
    yield from _triggers(settings, database)
    yield from _task_queue(settings)
    yield from _checks(settings, database)
    yield _fetch_times(settings, database)
    yield _alerts(settings, database)


def _held_changes(database: Database) -> Finding:
    with database.reading() as connection:
        held = health.held_changes(connection)
    if not held:
        return Finding("held changes", Health.OK, "none")
    of = ", ".join(f"{one.number} of {one.of} of {one.seller_id}" for one in held[:SHOWN])
    more = f" and {len(held) - SHOWN} sellers more" if len(held) > SHOWN else ""
    remedy = "See `mustit holds list`, then `mustit holds release SELLER` if it is really so."
    return Finding("held changes", Health.WARNING, f"products that look wrong: {of}{more}", remedy)


def _unprocessed(database: Database) -> Iterator[Finding]:
    """Fetched changes that recovery should have processed by now."""
    left = unprocessed(database, idle_seconds=UNHEALED_SECONDS)
    if left:
        more = f" and {len(left) - SHOWN} sellers more" if len(left) > SHOWN else ""
        detail = f"not processed: those of {', '.join(left[:SHOWN])}{more}"
        remedy = "Run `mustit recover`; look at the last runs of recover_stuck_work if they stay."
        yield Finding("fetched changes", Health.WARNING, detail, remedy)


def _triggers(settings: Settings, database: Database) -> Iterator[Finding]:
    """Parked messages; no finding if no queue is configured and none is parked."""
    with database.reading() as connection:
        parked = triggers.parked(connection)
    if parked:
        reasons = ", ".join(f"{number} {reason}" for reason, number in parked.items())
        remedy = "See `mustit triggers list`, then `mustit triggers dismiss --all`."
        yield Finding("trigger queue", Health.WARNING, f"parked messages: {reasons}", remedy)
    elif settings.trigger_queue_url is not None:
        yield Finding("trigger queue", Health.OK, "no message is parked")


def _task_queue(settings: Settings) -> Iterator[Finding]:
    """Whether SQS has the task queue, and what it has parked; no finding if PostgreSQL carries the tasks."""
    try:
        depths = dead_letters.depths(settings)
    except (AwsRefused, AwsUnreachable) as error:
        remedy = "Tasks wait and are not lost. Look at MUSTIT_TASK_QUEUE_NAME and at the AWS_ variables."
        yield Finding("task queue", Health.PROBLEM, error.english, remedy)
        return
    if depths is not None and depths.dead:
        remedy = "See `mustit dlq list`, then `mustit dlq redrive --all`, and `mustit dlq drop ID` for the rest."
        yield Finding("task queue", Health.WARNING, f"{depths.dead} messages are parked", remedy)
    elif depths is not None:
        yield Finding("task queue", Health.OK, f"{depths.visible} messages, {depths.in_flight} in workers' hands")


def _rules(settings: Settings, database: Database) -> Iterator[Finding]:
    """Whether EventBridge has every schedule, if it starts the crawls, and whether its queue is read."""
    if settings.trigger != "eventbridge":
        return
    with database.reading() as connection:
        found = scheduler_outbox.counts(connection)
    detail = f"{found.waiting} schedule changes wait to be sent, {found.failed} were given up"
    if found.failed:
        remedy = "Fix the failure that relay_scheduler_outbox shows, then run it with `everything: true`."
        yield Finding("EventBridge", Health.WARNING, detail, remedy)
    elif settings.trigger_queue_url is None and not settings.triggers_by_api:
        remedy = "Set MUSTIT_TRIGGER_QUEUE_URL to the queue that MUSTIT_TRIGGER_TARGET_ARN names."
        yield Finding("EventBridge", Health.WARNING, "its rules fire, but no queue is looked at", remedy)
    else:
        yield Finding("EventBridge", Health.OK, detail)


def _checks(settings: Settings, database: Database) -> Iterator[Finding]:
    """The rules of the hourly checks; no new samples are fetched from the marketplace."""
    now = utc_now()
    with database.reading() as connection:
        judged = [(one, one.judge(connection, settings, now)) for one in CRITERIA]
    failed = [(one, found) for one, found in judged if not found.passed and one.name not in SAID_ALREADY]
    if not failed:
        yield Finding("checks", Health.OK, f"{len(judged)} rules hold")
    for one, found in failed:
        named = str(found.metadata.get("sellers", "none"))
        detail = found.summary if named == "none" else f"{found.summary}: {named}"
        yield Finding(f"check {one.name}", Health.PROBLEM if one.error else Health.WARNING, detail, one.remedy)


def _fetch_times(settings: Settings, database: Database) -> Finding:
    """How long the marketplace takes to answer, slow or not."""
    [rule] = (one for one in CRITERIA if one.name == "fetch_p95")
    with database.reading() as connection:
        found = rule.judge(connection, settings, utc_now())
    if found.passed:
        return Finding("fetch times", Health.OK, found.summary)
    return Finding("fetch times", Health.WARNING, found.summary, rule.remedy)


def _places(settings: Settings) -> Iterator[Finding]:
    """Whether relay and recovery may have to wait for other runs."""
    wanted = settings.crawls_at_once + PLACES_BESIDE_CRAWLS
    if settings.runs_at_once < wanted:
        detail = (
            f"{settings.runs_at_once} runs at once for {settings.crawls_at_once} crawls: relay and recovery may wait"
        )
        yield Finding("places for runs", Health.WARNING, detail, f"Set MUSTIT_RUNS_AT_ONCE to {wanted} or more.")


def _alerts(settings: Settings, database: Database) -> Finding:
    with database.reading() as connection:
        number, unheard, why = alerts.open_alerts(connection)
    addresses = len(settings.alert_addresses())
    sent_to = f"sent to {addresses} addresses" if addresses else "not sent, MUSTIT_ALERT_URLS is not set"
    if unheard:
        return Finding(
            "alerts",
            Health.WARNING,
            f"{number} open, {unheard} of them could not be sent: {why}",
            "Run `mustit alerts test`, and correct MUSTIT_ALERT_URLS.",
        )
    if number:
        return Finding("alerts", Health.WARNING, f"{number} open; {sent_to}", "See `mustit alerts list`.")
    return Finding("alerts", Health.OK, f"none open; {sent_to}")
