"""What the ended runs of open crawls came to, as far as only Dagster knows it."""

from collections.abc import Collection
from datetime import UTC, datetime
from uuid import UUID

import dagster as dg

from mustit_pipeline.crawling.sql import slices
from mustit_pipeline.crawling.sql.slices import BegunCrawl, EndedSlice
from mustit_pipeline.defs.failures import StepFailure, step_failure
from mustit_pipeline.defs.run_tags import EXECUTION_TAG
from mustit_pipeline.domain.states import SliceOutcome
from mustit_pipeline.foundation.database import Database

ENDED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]


def slice_outcome(status: dg.DagsterRunStatus, failure: StepFailure | None, *, started: bool) -> SliceOutcome:
    """What a slice came to whose run has ended so and has said nothing else itself."""
    if status is dg.DagsterRunStatus.SUCCESS:
        return SliceOutcome.WORKED_THROUGH
    if status is dg.DagsterRunStatus.CANCELED:
        return SliceOutcome.STOPPED
    if not started:
        return SliceOutcome.NEVER_STARTED
    if failure is not None and failure.for_good is not None:
        return SliceOutcome.FAILED_FOR_GOOD
    return SliceOutcome.CRASHED


def record_ended_slices(
    instance: dg.DagsterInstance, database: Database, crawls: Collection[BegunCrawl], most: int
) -> None:
    """Store what the newest runs of these crawls came to; one that is crowded out is only tried a little sooner."""
    if not crawls:
        return
    records = instance.get_run_records(
        filters=dg.RunsFilter(statuses=ENDED, tags={EXECUTION_TAG: [str(one.execution_id) for one in crawls]}),
        limit=most * len(crawls),
    )
    with database.reading() as connection:
        known = slices.recorded(connection, [record.dagster_run.run_id for record in records])
    new = [_ended_slice(instance, record) for record in records if record.dagster_run.run_id not in known]
    with database.transaction() as connection:
        slices.record(connection, new)


def _ended_slice(instance: dg.DagsterInstance, record: dg.RunRecord) -> EndedSlice:
    run = record.dagster_run
    failure = step_failure(instance, run.run_id) if run.status is dg.DagsterRunStatus.FAILURE else None
    return EndedSlice(
        run.run_id,
        UUID(run.tags[EXECUTION_TAG]),
        slice_outcome(run.status, failure, started=record.start_time is not None),
        record.update_timestamp if record.end_time is None else datetime.fromtimestamp(record.end_time, UTC),
        None if failure is None else failure.for_good or failure.error,
    )
