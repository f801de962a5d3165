"""Alerts of failed runs and ticks; those of everything else come from the monitoring room."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import dagster as dg

from mustit_pipeline.crawling.sql import slices
from mustit_pipeline.defs.failures import step_failure
from mustit_pipeline.defs.monitoring.checks import CHECKING_JOB
from mustit_pipeline.defs.partitions import exports_a_day, is_of_a_day
from mustit_pipeline.defs.resources import BusinessDatabase, SettingsResource
from mustit_pipeline.defs.run_tags import PARTITION_TAG
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.monitoring import alert_texts as texts
from mustit_pipeline.monitoring.alerting import RUN_FAILED, RUN_OF_SELLER, TICK_FAILED, let_go, observe, record
from mustit_pipeline.monitoring.notifications import notify
from mustit_pipeline.monitoring.sql.alerts import Condition, Outcome

RUNS_AT_ONCE = 500
# Used if the cursor is lost; alerts know what they have seen, so that looks may overlap.
FIRST_LOOK = timedelta(hours=24)
OVERLAP = timedelta(minutes=2)
ENDED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE]
LONGEST_REASON = 500


@dataclass(frozen=True, slots=True)
class EndedRuns:
    """Runs that have ended, as outcomes, and how far the look came."""

    outcomes: list[Outcome]
    until: datetime


def ended_runs(instance: dg.DagsterInstance, database: Database, cursor: str | None, now: datetime) -> EndedRuns:
    """Runs that ended since the last look, oldest first; those that are left over come next time.

    A run whose crawl an operator has paused or cancelled is red, but no failure.
    """
    since = now - FIRST_LOOK if cursor is None else datetime.fromisoformat(cursor)
    records = instance.get_run_records(
        filters=dg.RunsFilter(statuses=ENDED, updated_after=since),
        limit=RUNS_AT_ONCE,
        order_by="update_timestamp",
        ascending=True,
    )
    if not records:
        return EndedRuns([], since)
    # Runs become visible a little out of order, so the last ones are looked at again.
    behind = timedelta(microseconds=1) if len(records) == RUNS_AT_ONCE else OVERLAP
    newest = _in_utc(records[-1].update_timestamp)
    with database.reading() as connection:
        halted = slices.halted(connection, [record.dagster_run.run_id for record in records])
    outcomes = [_outcome(instance, record) for record in records if record.dagster_run.run_id not in halted]
    return EndedRuns(outcomes, max(since, newest - behind))


def _outcome(instance: dg.DagsterInstance, record: dg.RunRecord) -> Outcome:
    run = record.dagster_run
    subject = _subject(run)
    ended = record.end_time
    at = _in_utc(record.update_timestamp) if ended is None else datetime.fromtimestamp(ended, UTC)
    if run.status is dg.DagsterRunStatus.SUCCESS:
        return Outcome(subject, RUN_FAILED, at, None)
    partition = run.tags.get(PARTITION_TAG)
    job = "a run of chosen assets" if _is_chosen(run) else run.job_name
    failed = texts.RUN_FAILED if partition is None else texts.RUN_OF_PARTITION_FAILED
    title = failed.say(job=job, partition=partition)
    detail = f"{_reason(instance, run.run_id)} Run {run.run_id}."
    return Outcome(subject, RUN_FAILED, at, Condition(subject, RUN_FAILED, title, detail))


def _subject(run: dg.DagsterRun) -> str:
    """What the next good run heals: a seller or a day by whatever job, anything else by the same job.

    Whatever is materialized has a partition, so that chosen assets without one are checks, as the hourly job runs them.
    """
    partition = run.tags.get(PARTITION_TAG)
    if partition is None:
        return f"run {CHECKING_JOB if _is_chosen(run) else run.job_name}"
    if exports_a_day(run):
        return f"export of day {partition}"
    return f"run of day {partition}" if is_of_a_day(run) else f"{RUN_OF_SELLER}{partition}"


def _is_chosen(run: dg.DagsterRun) -> bool:
    """Whether an operator chose assets in the UI or for a backfill; Dagster then makes the job."""
    return run.job_name.startswith("__")


def _in_utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def _reason(instance: dg.DagsterInstance, run_id: str) -> str:
    """What our own code said; the text of any other error stays in the run, because it may hold secrets."""
    failure = step_failure(instance, run_id)
    if failure is None:
        return "It ended outside of a step."
    if failure.said:
        return f"{failure.step}: {failure.said[:LONGEST_REASON]}."
    return f"{failure.step}: {failure.error or 'an error'}."


def failed_ticks(context: dg.SensorEvaluationContext) -> Iterable[Condition]:
    """Schedules and sensors whose newest tick failed.

    Those of a code location that was moved or renamed are still known to Dagster and never tick again: only the
    sensor's own location counts.
    """
    instance, ours = context.instance, context.code_location_origin
    if instance.schedule_storage is None:
        return
    for state in instance.all_instigator_state():
        if state.status.value == "STOPPED" or (ours and state.origin.location_name != ours.location_name):
            continue
        ticks = instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=2)
        ended = [tick for tick in ticks if tick.status.value != "STARTED"]
        if ended and ended[0].status.value == "FAILURE":
            name = state.instigator_name
            kind = state.instigator_type.value.lower()
            yield Condition(
                f"tick {name}",
                TICK_FAILED,
                texts.TICK_FAILED.say(kind=kind, name=name),
                texts.TICK_FAILED_DETAIL.english,
            )


@dg.sensor(
    minimum_interval_seconds=30,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Keeps alerts of failed runs and ticks, failing checks, holds, incomplete sweeps, breakers and FAILED "
    "events, and tells MUSTIT_ALERT_URLS once of each, again while it goes on, and when it is over.",
)
def run_failures(
    context: dg.SensorEvaluationContext, settings: SettingsResource, database: BusinessDatabase
) -> dg.SkipReason:
    now = utc_now()
    runs = ended_runs(context.instance, database.open(), context.cursor, now)
    ran = record(database.open(), runs.outcomes, now)
    seen = observe(database.open(), settings.read(), now, others=list(failed_ticks(context)))
    gone = let_go(database.open(), now)
    # The alerts are stored by now: whatever becomes of the messages, this look is done.
    context.update_cursor(runs.until.isoformat())
    notified = notify(database.open(), settings.read(), now)
    return dg.SkipReason(
        f"{ran.opened + seen.opened} alerts opened, {ran.ended + seen.ended + gone.ended} ended; "
        f"{notified.sent} notifications sent, {notified.unsent} still to be sent"
    )
