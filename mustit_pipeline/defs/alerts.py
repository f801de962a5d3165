"""Whatever somebody should know of, found and told: failed runs and ticks here, everything else by the room."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import dagster as dg

from mustit_pipeline.defs.checks import CHECKING_JOB
from mustit_pipeline.defs.liveness import PARTITION_TAG, measures_a_day
from mustit_pipeline.defs.resources import Pipeline
from mustit_pipeline.defs.slices import HALTED_TAG
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.monitoring.alerting import RUN_FAILED, RUN_OF_SELLER, TICK_FAILED, let_go, observe, record
from mustit_pipeline.monitoring.notifications import tell
from mustit_pipeline.monitoring.sql.alerts import Condition, Outcome

RUNS_AT_ONCE = 500
# Where nobody remembers how far the last look came; alerts know what they have seen, so that looks may overlap.
FIRST_LOOK = timedelta(hours=24)
OVERLAP = timedelta(minutes=2)
ENDED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE]
LONGEST_REASON = 500


@dataclass(frozen=True, slots=True)
class EndedRuns:
    """Runs that have ended, as outcomes, and how far the look came."""

    outcomes: list[Outcome]
    until: datetime


def ended_runs(instance: dg.DagsterInstance, cursor: str | None, now: datetime) -> EndedRuns:
    """Runs that ended since the last look, oldest first; those that are left over come next time.

    A run whose crawl somebody has paused or cancelled is red, but no failure.
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
    told = [record for record in records if record.dagster_run.tags.get(HALTED_TAG) != record.dagster_run.run_id]
    return EndedRuns([_outcome(instance, record) for record in told], max(since, newest - behind))


def _outcome(instance: dg.DagsterInstance, record: dg.RunRecord) -> Outcome:
    run = record.dagster_run
    subject = _subject(run)
    ended = record.end_time
    at = _in_utc(record.update_timestamp) if ended is None else datetime.fromtimestamp(ended, UTC)
    if run.status is dg.DagsterRunStatus.SUCCESS:
        return Outcome(subject, RUN_FAILED, at, None)
    partition = run.tags.get(PARTITION_TAG)
    job = "a run of chosen assets" if _is_chosen(run) else run.job_name
    title = f"{job} failed" if partition is None else f"{job} of {partition} failed"
    detail = f"{_reason(instance, run.run_id)} Run {run.run_id}."
    return Outcome(subject, RUN_FAILED, at, Condition(subject, RUN_FAILED, title, detail))


def _subject(run: dg.DagsterRun) -> str:
    """What the next good run heals: a seller or a day by whatever job, anything else by the same job.

    Whatever is materialized has a partition, so that chosen assets without one are checks, as the hourly job runs them.
    """
    partition = run.tags.get(PARTITION_TAG)
    if partition is None:
        return f"run {CHECKING_JOB if _is_chosen(run) else run.job_name}"
    return f"run of day {partition}" if measures_a_day(run) else f"{RUN_OF_SELLER}{partition}"


def _is_chosen(run: dg.DagsterRun) -> bool:
    """Whether somebody chose assets in the UI or for a backfill; Dagster then makes the job."""
    return run.job_name.startswith("__")


def _in_utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def _reason(instance: dg.DagsterInstance, run_id: str) -> str:
    """What our own code said; the text of any other error stays in the run, because nobody knows what it holds."""
    failures = instance.get_records_for_run(run_id, of_type=dg.DagsterEventType.STEP_FAILURE, limit=1).records
    event = failures[0].event_log_entry.dagster_event if failures else None
    if event is None:
        return "It ended outside of a step."
    data = event.step_failure_data
    said = data.user_failure_data.description if data.user_failure_data is not None else None
    if said:
        return f"{event.step_key}: {said[:LONGEST_REASON]}."
    error = data.error
    name = "an error" if error is None else (error.cause or error).cls_name
    return f"{event.step_key}: {name}."


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
                f"The {kind} {name} fails",
                "Its last tick failed: look at it in Automation.",
            )


@dg.sensor(
    minimum_interval_seconds=30,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Keeps alerts of failed runs and ticks, failing checks, holds, incomplete sweeps, breakers and FAILED "
    "events, and tells MUSTIT_ALERT_URLS once of each, again while it goes on, and when it is over.",
)
def run_failures(context: dg.SensorEvaluationContext, pipeline: Pipeline) -> dg.SkipReason:
    now = utc_now()
    runs = ended_runs(context.instance, context.cursor, now)
    ran = record(pipeline.database, runs.outcomes, now)
    seen = observe(pipeline.database, pipeline.settings, now, others=list(failed_ticks(context)))
    gone = let_go(pipeline.database, now)
    # The alerts are stored by now: whatever becomes of the messages, this look is done.
    context.update_cursor(runs.until.isoformat())
    told = tell(pipeline.database, pipeline.settings, now)
    return dg.SkipReason(
        f"{ran.opened + seen.opened} alerts opened, {ran.ended + seen.ended + gone.ended} ended; {told.told} told, "
        f"{told.untold} still to be told"
    )
