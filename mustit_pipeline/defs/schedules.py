"""What runs by the clock."""

from datetime import UTC, date
from zoneinfo import ZoneInfo

import dagster as dg

from mustit_pipeline.defs.jobs import crawl_seller, measure_days, recover_stuck_work, relay_product_outbox
from mustit_pipeline.defs.liveness import DAY_METRICS, busy_sellers, is_under_way, unfinished_runs
from mustit_pipeline.defs.maintenance import maintain_storage
from mustit_pipeline.defs.partitions import FIRST_DAY
from mustit_pipeline.defs.resources import Pipeline
from mustit_pipeline.defs.sensors import why_no_event_is_sent
from mustit_pipeline.defs.slices import slice_requests, without_backfills
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.monitoring.metrics import SEOUL, days_to_compute
from mustit_pipeline.scheduling.refresh import next_refreshes
from mustit_pipeline.upkeep.recovery import find_stuck

# After a pause the daemon makes up for the last missed tick only, and the next one may come while that one's run still
# waits: one relay, maintenance or check answers both.


@dg.schedule(
    job=relay_product_outbox,
    cron_schedule="*/5 * * * *",
    execution_timezone=SEOUL,
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Sends waiting product events even if the sensor is off; starts no run while none can be sent.",
)
def relay_every_5_minutes(context: dg.ScheduleEvaluationContext, pipeline: Pipeline) -> dg.RunRequest | dg.SkipReason:
    if is_under_way(context, pipeline, relay_product_outbox.name):
        return dg.SkipReason("a relay is running already")
    why_not = why_no_event_is_sent(pipeline)
    return dg.RunRequest() if why_not is None else dg.SkipReason(why_not)


@dg.schedule(
    job=recover_stuck_work,
    cron_schedule="* * * * *",
    execution_timezone=SEOUL,
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Recovers what somebody left behind; starts no run while nothing is stuck.",
)
def recover_every_minute(context: dg.ScheduleEvaluationContext, pipeline: Pipeline) -> dg.RunRequest | dg.SkipReason:
    runs = unfinished_runs(context.instance, pipeline)
    if any(run.job_name == recover_stuck_work.name for run in runs):
        return dg.SkipReason("a recovery is running already")
    found = find_stuck(pipeline.database, utc_now(), busy=busy_sellers(runs))
    if not found.anything:
        return dg.SkipReason("nothing is stuck")
    context.log.info(f"stuck: {found}")
    return dg.RunRequest()


@dg.schedule(
    job=measure_days,
    cron_schedule="10 0 * * *",
    execution_timezone=SEOUL,
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Computes yesterday's metrics, those of days that an outage left out, and again those of earlier days "
    "whose crawls have gone on since.",
)
def daily_metrics(context: dg.ScheduleEvaluationContext, pipeline: Pipeline) -> list[dg.RunRequest]:
    # The daemon tells the time in the schedule's own zone, a tick from the UI in whichever it likes.
    tick = context.scheduled_execution_time.astimezone(ZoneInfo(SEOUL))
    measured = {date.fromisoformat(key) for key in context.instance.get_materialized_partitions(DAY_METRICS)}
    computed = [day.isoformat() for day in days_to_compute(pipeline.database, tick, measured)]
    return [dg.RunRequest(run_key=f"{day}:{tick:%Y-%m-%d}", partition_key=day) for day in computed if day >= FIRST_DAY]


@dg.schedule(
    job=maintain_storage,
    cron_schedule="30 3 * * *",
    execution_timezone=SEOUL,
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Months ahead, retention, and Dagster's own history, while Seoul sleeps.",
)
def nightly_maintenance(context: dg.ScheduleEvaluationContext, pipeline: Pipeline) -> dg.RunRequest | dg.SkipReason:
    if is_under_way(context, pipeline, maintain_storage.name):
        return dg.SkipReason("a maintenance is running already")
    return dg.RunRequest()


@dg.schedule(
    job=crawl_seller,
    cron_schedule="0 * * * *",
    execution_timezone=SEOUL,
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Refetches everything of sellers whose last full refresh is a week old, as slots are free.",
)
def weekly_full_refresh(
    context: dg.ScheduleEvaluationContext, pipeline: Pipeline
) -> list[dg.RunRequest] | dg.SkipReason:
    runs = unfinished_runs(context.instance, pipeline)
    # Whoever waits in a backfill is about to be fetched anyway.
    busy = busy_sellers(runs)
    slots = pipeline.settings.crawls_at_once
    free = slots - len(busy_sellers(without_backfills(runs)))
    now = context.scheduled_execution_time.astimezone(UTC)
    found = next_refreshes(pipeline.database, pipeline.settings, busy=busy, free=free, now=now)
    if found.slices:
        context.log.info(f"{len(found.slices)} full refreshes started; {found.waiting} sellers wait for a free slot")
        return slice_requests(context.instance, found.slices)
    if found.waiting:
        return dg.SkipReason(f"all {slots} crawl slots are busy; {found.waiting} sellers wait for a full refresh")
    age = pipeline.settings.full_refresh_days
    return dg.SkipReason(
        f"every active seller is being crawled, had a full refresh within {age:g} days, or rests after a failed one"
    )
