"""Whether the process of a run still lives.

Dagster's default launcher never notices that a started run's process was killed: the run would stay STARTED, and its
seller busy, for ever. So a run holds a lock that PostgreSQL drops the moment its process is gone.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

import dagster as dg

from mustit_pipeline.defs.partitions import is_of_a_day
from mustit_pipeline.defs.run_tags import PARTITION_TAG
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.foundation.liveness import find_dead
from mustit_pipeline.settings import Settings

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


@dataclass(frozen=True, slots=True)
class UnfinishedRuns:
    """Runs that wait or work, and the ids of those that Dagster calls started although their process is gone."""

    alive: list[dg.DagsterRun]
    dead: list[str]


def unfinished_runs(instance: dg.DagsterInstance, database: Database, settings: Settings) -> UnfinishedRuns:
    """Every unfinished run, with or without its process."""
    records = instance.get_run_records(filters=dg.RunsFilter(statuses=UNFINISHED))
    old = [
        record.dagster_run.run_id
        for record in records
        if record.dagster_run.status is dg.DagsterRunStatus.STARTED
        and time.time() - (record.start_time or time.time()) >= settings.run_grace_seconds
    ]
    dead = find_dead(database, old)
    if dead:
        time.sleep(SETTLE_SECONDS)
        dead = find_dead(database, sorted(dead))
    alive = [record.dagster_run for record in records if record.dagster_run.run_id not in dead]
    return UnfinishedRuns(alive, sorted(dead))


def fail_dead_runs(instance: dg.DagsterInstance, runs: UnfinishedRuns) -> int:
    """Fail the runs without a process, but for those that have ended meanwhile; says how many that were."""
    failed = 0
    for run_id in runs.dead:
        run = instance.get_run_by_id(run_id)
        if run is not None and run.status is dg.DagsterRunStatus.STARTED:
            instance.report_run_failed(run, "The run's process is gone; the next run goes on from what is stored.")
            failed += 1
    return failed


def is_under_way(context: dg.ScheduleEvaluationContext, database: Database, settings: Settings, job_name: str) -> bool:
    """Whether a run of this job waits or works, and not for this very tick."""
    tick = context.scheduled_execution_time.timestamp()
    runs = [run for run in unfinished_runs(context.instance, database, settings).alive if run.job_name == job_name]
    return any(
        TICK_TAG not in run.tags or datetime.fromisoformat(run.tags[TICK_TAG]).timestamp() != tick for run in runs
    )


def busy_sellers(runs: Iterable[dg.DagsterRun]) -> set[str]:
    """Sellers that some unfinished run belongs to."""
    return {run.tags[PARTITION_TAG] for run in runs if PARTITION_TAG in run.tags and not is_of_a_day(run)}
