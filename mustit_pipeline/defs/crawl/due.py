"""The job that works on a slice of a crawl, and what starts it: sellers that are due, and the weekly refresh."""

from collections.abc import Iterable, Sequence
from datetime import UTC

import dagster as dg

from mustit_pipeline.defs.crawl.crashes import record_ended_slices
from mustit_pipeline.defs.crawl.slices import request_slices, without_backfills, without_waiting_backfills
from mustit_pipeline.defs.liveness import busy_sellers, fail_dead_runs, unfinished_runs
from mustit_pipeline.defs.resources import BusinessDatabase, SettingsResource
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.monitoring.metrics import SEOUL
from mustit_pipeline.scheduling.crashes import (
    CrashRules,
    RestingCrawl,
    begun_crawls,
    give_up_crashing_crawls,
    newest_slices,
    resting_crawls,
)
from mustit_pipeline.scheduling.due import begin_slices
from mustit_pipeline.scheduling.light import open_light_slices
from mustit_pipeline.scheduling.refresh import open_refreshes
from mustit_pipeline.scheduling.sql.next_sellers import count_next_sellers

CRAWL_ASSETS = ["minishop_listings", "product_details", "product_options", "product_change_sets"]

crawl_seller = dg.define_asset_job(
    "crawl_seller",
    selection=dg.AssetSelection.assets(*CRAWL_ASSETS),
    description="One slice of one seller's crawl: sweep the listing, fetch products, write change sets.",
    executor_def=dg.in_process_executor,
)


def free_slots(runs: Iterable[dg.DagsterRun], slots: int) -> int:
    """How many more sellers may be crawled at once beside these runs."""
    return slots - len(busy_sellers(without_backfills(runs)))


def rests(resting: Sequence[RestingCrawl]) -> str:
    """Which crawls rest and why, as the end of a sentence."""
    return "".join(f"; {one.crawl.seller_id} rests: {one.why}" for one in sorted(resting, key=_seller))


def _seller(resting: RestingCrawl) -> str:
    return resting.crawl.seller_id


@dg.sensor(
    job_name=crawl_seller.name,
    # Small crawls end in a second: slots should not stand empty for long.
    minimum_interval_seconds=5,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Starts crawls that are due and continues those whose slice has ended, as slots are free; where there "
    "is none, light crawls, as requests are to spare.",
)
def due_crawls(
    context: dg.SensorEvaluationContext, settings: SettingsResource, database: BusinessDatabase
) -> dg.SensorResult | dg.SkipReason:
    now, rules, slots = utc_now(), CrashRules.of(settings.read()), settings.read().crawls_at_once
    runs = unfinished_runs(context.instance, database.open(), settings.read())
    fail_dead_runs(context.instance, runs)
    busy, free = busy_sellers(without_waiting_backfills(runs.alive)), free_slots(runs.alive, slots)
    if free <= 0:
        return dg.SkipReason(f"all {slots} crawl slots are busy: {', '.join(sorted(busy)[:10])}")

    crawls = begun_crawls(database.open(), busy=busy)
    record_ended_slices(context.instance, database.open(), crawls, rules.most)
    resting = resting_crawls(crawls, newest_slices(database.open(), crawls, rules), rules, now)
    give_up_crashing_crawls(database.open(), resting, now)

    # Otherwise a rule of EventBridge starts what is due, by a message that sqs_triggers takes.
    by_interval = settings.read().trigger == "dagster"
    passed_over = busy | {_seller(one) for one in resting}
    slices = begin_slices(
        database.open(),
        busy=passed_over,
        free=free,
        now=now,
        slice_seconds=settings.read().crawl_slice_seconds,
        by_interval=by_interval,
    )
    light = [] if slices else open_light_slices(database.open(), settings.read(), busy=passed_over, free=free, now=now)
    if light:
        context.log.info(f"{len(light)} light crawls: {', '.join(sorted(entry.seller_id for entry in light)[:10])}")
        return dg.SensorResult(run_requests=request_slices(context.instance, light))
    if not slices:
        due = "no seller is due" if by_interval else "EventBridge says who is due"
        return dg.SkipReason(f"{due} and no crawl waits to be continued; {len(busy)} running{rests(resting)}")
    started = sorted(entry.seller_id for entry in slices)
    with database.open().reading() as connection:
        waiting = count_next_sellers(connection, busy={*passed_over, *started}, by_interval=by_interval)
    (context.log.warning if resting else context.log.info)(
        f"{len(started)} slices requested: {', '.join(started[:10])}; {waiting} sellers wait for a free slot"
        f"{rests(resting)}"
    )
    return dg.SensorResult(run_requests=request_slices(context.instance, slices))


@dg.schedule(
    job=crawl_seller,
    cron_schedule="0 * * * *",
    execution_timezone=SEOUL,
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Refetches everything of sellers whose last full refresh is a week old, as slots are free.",
)
def weekly_full_refresh(
    context: dg.ScheduleEvaluationContext, settings: SettingsResource, database: BusinessDatabase
) -> list[dg.RunRequest] | dg.SkipReason:
    slots = settings.read().crawls_at_once
    runs = unfinished_runs(context.instance, database.open(), settings.read()).alive
    found = open_refreshes(
        database.open(),
        settings.read(),
        # A seller that waits in a backfill is about to be fetched anyway.
        busy=busy_sellers(runs),
        free=free_slots(runs, slots),
        now=context.scheduled_execution_time.astimezone(UTC),
    )
    if found.slices:
        context.log.info(f"{len(found.slices)} full refreshes started; {found.waiting} sellers wait for a free slot")
        return request_slices(context.instance, found.slices)
    if found.waiting:
        return dg.SkipReason(f"all {slots} crawl slots are busy; {found.waiting} sellers wait for a full refresh")
    age = settings.read().full_refresh_days
    return dg.SkipReason(
        f"every active seller is being crawled, had a full refresh within {age:g} days, or rests after a failed one"
    )
