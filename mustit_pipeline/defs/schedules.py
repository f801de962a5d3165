"""What runs by the clock."""

import dagster as dg

from mustit_pipeline.clock import utc_now
from mustit_pipeline.defs.jobs import recover_stuck_work, relay_product_outbox
from mustit_pipeline.defs.presence import busy_sellers, unfinished_runs
from mustit_pipeline.defs.resources import Pipeline
from mustit_pipeline.scheduling.recovery import find_stuck

relay_every_5_minutes = dg.ScheduleDefinition(
    name="relay_every_5_minutes",
    job=relay_product_outbox,
    cron_schedule="*/5 * * * *",
    execution_timezone="Asia/Seoul",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Sends waiting product events even if the sensor is off.",
)


@dg.schedule(
    job=recover_stuck_work,
    cron_schedule="* * * * *",
    execution_timezone="Asia/Seoul",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Recovers what somebody left behind; starts no run while nothing is stuck.",
)
def recover_every_minute(context: dg.ScheduleEvaluationContext, pipeline: Pipeline) -> dg.RunRequest | dg.SkipReason:
    runs = unfinished_runs(context.instance, pipeline.database)
    if any(run.job_name == recover_stuck_work.name for run in runs):
        return dg.SkipReason("a recovery is running already")
    found = find_stuck(pipeline.database, utc_now(), busy=busy_sellers(runs))
    if not found.anything:
        return dg.SkipReason("nothing is stuck")
    context.log.info(f"stuck: {found}")
    return dg.RunRequest()
