"""Whether the process of a run still lives.

Dagster's default launcher never notices that a started run's process was killed: the run would stay STARTED, and its
seller busy, for ever. So a run holds a lock that PostgreSQL drops the moment its process is gone.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

import dagster as dg

from mustit_pipeline.defs.resources import Pipeline
from mustit_pipeline.foundation.liveness import absent

UNFINISHED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
# From the lock's end to the run's, and from PostgreSQL's return until the lock is taken again, a moment passes.
SETTLE_SECONDS = 3.0
# A tick that the daemon was killed in is judged again, and goes on with the run that it had made.
TICK_TAG = ".dagster/scheduled_execution_time"
PARTITION_TAG = "dagster/partition"
# The one asset that is cut by day: a run of it has a partition, but no seller.
MEASURING_JOB = "measure_days"
DAY_METRICS = dg.AssetKey("daily_crawl_metrics")
BY_DAY = frozenset({DAY_METRICS})


@dataclass(frozen=True, slots=True)
class Census:
    """Runs that wait or work, and the ids of those that were failed because their process is gone."""

    alive: list[dg.DagsterRun]
    dead: list[str]


def unfinished_runs(instance: dg.DagsterInstance, pipeline: Pipeline) -> list[dg.DagsterRun]:
    """Runs that wait or work, after those whose process is gone have been failed."""
    return take_census(instance, pipeline).alive


def is_under_way(context: dg.ScheduleEvaluationContext, pipeline: Pipeline, job_name: str) -> bool:
    """Whether a run of this job waits or works, and not for this very tick."""
    tick = context.scheduled_execution_time.timestamp()
    runs = [run for run in unfinished_runs(context.instance, pipeline) if run.job_name == job_name]
    return any(
        TICK_TAG not in run.tags or datetime.fromisoformat(run.tags[TICK_TAG]).timestamp() != tick for run in runs
    )


def busy_sellers(runs: Iterable[dg.DagsterRun]) -> set[str]:
    """Sellers that some unfinished run belongs to."""
    return {run.tags[PARTITION_TAG] for run in runs if PARTITION_TAG in run.tags and not measures_a_day(run)}


def measures_a_day(run: dg.DagsterRun) -> bool:
    """Whether a run's partition is a day; then it keeps no seller busy."""
    return run.job_name == MEASURING_JOB or run.asset_selection == BY_DAY


def take_census(instance: dg.DagsterInstance, pipeline: Pipeline) -> Census:
    """Look at every unfinished run, and fail those whose process is gone."""
    grace_seconds = pipeline.settings.run_grace_seconds
    records = instance.get_run_records(filters=dg.RunsFilter(statuses=UNFINISHED))
    old = [
        record.dagster_run.run_id
        for record in records
        if record.dagster_run.status is dg.DagsterRunStatus.STARTED
        and time.time() - (record.start_time or time.time()) >= grace_seconds
    ]
    dead = absent(pipeline.database, old)
    failed: list[str] = []
    if dead:
        time.sleep(SETTLE_SECONDS)
        dead = absent(pipeline.database, sorted(dead))
        for run_id in sorted(dead):
            run = instance.get_run_by_id(run_id)
            if run is not None and run.status is dg.DagsterRunStatus.STARTED:
                instance.report_run_failed(run, "The run's process is gone; the next run goes on from what is stored.")
                failed.append(run_id)
    alive = [record.dagster_run for record in records if record.dagster_run.run_id not in dead]
    return Census(alive, failed)
