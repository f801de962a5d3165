"""Which crawls rest because their slices crash, and which are given up."""

from collections.abc import Collection
from datetime import UTC, datetime
from uuid import UUID

import dagster as dg

from mustit_pipeline.crawling.executions import give_up
from mustit_pipeline.defs.failures import FAILED_FOR_GOOD_TAG
from mustit_pipeline.defs.resources import Pipeline
from mustit_pipeline.defs.slices import EXECUTION_TAG, WORKED_THROUGH_TAG
from mustit_pipeline.domain.values import ExecutionId
from mustit_pipeline.scheduling.crashes import SLICE_CRASHED, CrashRules, CrashVerdict, EndedSlice, judge_crashes
from mustit_pipeline.upkeep.sql import stuck
from mustit_pipeline.upkeep.sql.stuck import OpenExecution

ENDED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]


def resting_sellers(
    instance: dg.DagsterInstance, pipeline: Pipeline, now: datetime, *, busy: Collection[str]
) -> dict[str, str]:
    """Sellers whose open crawl gets no slice now, and why; one that crashed too often is failed on the way."""
    with pipeline.database.reading() as connection:
        waiting = [one for one in stuck.begun(connection) if one.seller_id not in busy]
    settings = pipeline.settings
    rules = CrashRules(
        settings.slice_max_crashes, settings.slice_backoff_seconds, settings.slice_longest_backoff_seconds
    )
    history = _ended_slices(instance, waiting, rules.most)
    resting: dict[str, str] = {}
    for one in waiting:
        ended = history[one.execution_id]
        verdict = judge_crashes(ended, rules, moved_at=one.moved_at, now=now)
        if verdict.give_up:
            reason = _reason(instance, verdict, ended[0])
            give_up(pipeline.database, ExecutionId(one.execution_id), SLICE_CRASHED, reason, now)
            resting[one.seller_id] = (
                f"given up after {verdict.crashes} crashes in a row"
                if ended[0].for_good is None
                else f"given up, its last run failed for good with {ended[0].for_good}"
            )
        elif verdict.wait_seconds > 0:
            resting[one.seller_id] = f"{verdict.crashes} crashes in a row, next try in {verdict.wait_seconds:.0f} s"
    return resting


def _ended_slices(
    instance: dg.DagsterInstance, waiting: Collection[OpenExecution], most: int
) -> dict[UUID, list[EndedSlice]]:
    """The newest runs of these executions, newest first; one that is crowded out here is only tried a little sooner."""
    found: dict[UUID, list[EndedSlice]] = {one.execution_id: [] for one in waiting}
    if not found:
        return found
    records = instance.get_run_records(
        filters=dg.RunsFilter(statuses=ENDED, tags={EXECUTION_TAG: [str(execution_id) for execution_id in found]}),
        limit=most * len(found),
    )
    for record in records:
        run = record.dagster_run
        ended_at = record.update_timestamp if record.end_time is None else datetime.fromtimestamp(record.end_time, UTC)
        crashed = run.status is dg.DagsterRunStatus.FAILURE and WORKED_THROUGH_TAG not in run.tags
        found[UUID(run.tags[EXECUTION_TAG])].append(
            EndedSlice(
                run.run_id,
                crashed,
                ended_at,
                started=record.start_time is not None,
                for_good=run.tags.get(FAILED_FOR_GOOD_TAG),
            )
        )
    return found


def _reason(instance: dg.DagsterInstance, verdict: CrashVerdict, last: EndedSlice) -> str:
    """In words for people; the error's own text stays in the run, because nobody knows what it holds."""
    run_id = last.run_id
    remedy = f"look at the run {run_id}, mend the cause, and go on with `mustit execution resume`"
    if last.for_good is not None:
        return f"its last run failed for good with {last.for_good}: {remedy}"
    failures = instance.get_records_for_run(run_id, of_type=dg.DagsterEventType.STEP_FAILURE, limit=1).records
    event = failures[0].event_log_entry.dagster_event if failures else None
    error = None if event is None else event.step_failure_data.error
    name = "its process ended" if error is None else (error.cause or error).cls_name
    return f"{verdict.crashes} runs in a row crashed without getting any further, the last one with {name}: {remedy}"
