"""Stuck work: looked for every minute, recovered by a run where there is any."""

import dagster as dg

from mustit_pipeline.defs.failures import RETRY_TRANSIENT, readable_failures
from mustit_pipeline.defs.liveness import busy_sellers, fail_dead_runs, unfinished_runs
from mustit_pipeline.defs.resources import BusinessDatabase, SettingsResource
from mustit_pipeline.defs.run_tags import FIRST
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.monitoring.metrics import SEOUL
from mustit_pipeline.upkeep.recovery import find_stuck, recover


@dg.op(
    description="Set free what dead processes left behind: tasks, crawls, events, agents and fetched changes; fail "
    "runs without a process.",
    retry_policy=RETRY_TRANSIENT,
)
def recover_what_is_stuck(
    context: dg.OpExecutionContext, settings: SettingsResource, database: BusinessDatabase
) -> dict[str, int]:
    with readable_failures():
        runs = unfinished_runs(context.instance, database.open(), settings.read())
        failed = fail_dead_runs(context.instance, runs)
        recovered = recover(database.open(), settings.read(), utc_now, busy=busy_sellers(runs.alive))
    totals = {
        "released_tasks": recovered.tasks,
        "completed_executions": recovered.executions,
        "released_events": recovered.events,
        "recovered_agents": recovered.agents,
        "processed_sellers": recovered.sellers,
        "failed_runs": failed,
    }
    context.add_output_metadata(totals)
    return totals


@dg.job(
    description="Recovers expired leases, crawls that were never ended, events without a sender, rested agents, and "
    "fetched changes that were not processed.",
    tags=FIRST,
    executor_def=dg.in_process_executor,
)
def recover_stuck_work() -> None:
    recover_what_is_stuck()


@dg.schedule(
    job=recover_stuck_work,
    cron_schedule="* * * * *",
    execution_timezone=SEOUL,
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Recovers what dead processes left behind; starts no run while nothing is stuck.",
)
def recover_every_minute(
    context: dg.ScheduleEvaluationContext, settings: SettingsResource, database: BusinessDatabase
) -> dg.RunRequest | dg.SkipReason:
    runs = unfinished_runs(context.instance, database.open(), settings.read())
    # Here and not only in the job, whose run would wait for ever in a queue that is full of them.
    fail_dead_runs(context.instance, runs)
    if any(run.job_name == recover_stuck_work.name for run in runs.alive):
        return dg.SkipReason("a recovery is running already")
    found = find_stuck(database.open(), utc_now(), busy=busy_sellers(runs.alive))
    if not found.anything:
        return dg.SkipReason("nothing is stuck")
    context.log.info(f"stuck: {found}")
    return dg.RunRequest()
