"""What each day in Seoul came to, seller by seller, as a DataFrame in the lake."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import date
from hashlib import md5
from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg

from mustit_pipeline.defs.failures import RETRY_TRANSIENT, readable_failures
from mustit_pipeline.defs.metadata import OWNERS, columns, lineage
from mustit_pipeline.defs.partitions import DAY_METRICS, FIRST_DAY, MEASURING_JOB, days
from mustit_pipeline.defs.resources import BusinessDatabase
from mustit_pipeline.defs.run_tags import HOUSEKEEPING
from mustit_pipeline.lake.columns import library
from mustit_pipeline.monitoring.metrics import CHANGE_KINDS, SEOUL, CrawlMetrics, days_to_compute, metrics_of, sums

SHOWN_ROWS = 20

METRIC_COLUMNS = columns(
    day=("date", "The day, from midnight to midnight in Seoul"),
    seller_id=("text", "The seller"),
    success_rate=("double precision", "Succeeded tasks of all tasks of the crawls started that day, in percent"),
    progress_rate=("double precision", "Complete products of those that the seller lists at the day's end, in percent"),
    crawls=("bigint", "Crawls that started that day"),
    tasks_total=("bigint", "Their tasks"),
    tasks_completed=("bigint", "Tasks that succeeded"),
    tasks_failed=("bigint", "Tasks that failed for good"),
    tasks_waiting=("bigint", "Tasks not yet published"),
    tasks_published=("bigint", "Tasks in the queue"),
    tasks_in_progress=("bigint", "Tasks that a worker has"),
    tasks_retry=("bigint", "Tasks that wait for another try"),
    requests=("bigint", "Calls to the marketplace"),
    throttled=("bigint", "Answers 429 among them"),
    products_total=("bigint", "Products that the seller listed last"),
    products_complete=("bigint", "Products of which listing, detail and options were known"),
    change_sets=("bigint", "Versions that were written that day"),
    **{
        f"changes_{kind.lower()}": ("bigint", f"Products whose version that day was or held a change {kind}")
        for kind in CHANGE_KINDS
    },
    delivered=("bigint", "Events that the product server took that day"),
    delivery_median_hours=("double precision", "From a change's detection to its delivery, median"),
    delivery_max_hours=("double precision", "The longest such delay"),
    fetch_p95_seconds=("double precision", "95 % of the day's fetches, of all sellers together, took no longer"),
)

LINEAGE = lineage(
    seller_id="product_change_sets.seller_id",
    products_complete="product_change_sets.life_cycle",
    change_sets="product_change_sets.version",
    **{
        f"changes_{kind.lower()}": "product_change_sets.life_cycle product_change_sets.change_types"
        for kind in CHANGE_KINDS
    },
    delivered="product_server.version",
    delivery_median_hours="product_change_sets.version product_server.version",
    delivery_max_hours="product_change_sets.version product_server.version",
)


def as_row(one: CrawlMetrics) -> dict[str, Any]:
    """A seller's day, column by column."""
    counts = asdict(one.counts)
    changes = counts.pop("changes")
    return {
        "day": one.day,
        "success_rate": round(one.success_rate, 4),
        "progress_rate": round(one.progress_rate, 4),
        **counts,
        **{f"changes_{kind.lower()}": changes.get(kind, 0) for kind in CHANGE_KINDS},
        "fetch_p95_seconds": None if one.fetch_p95_seconds is None else round(one.fetch_p95_seconds, 4),
    }


def frame_of(rows: Sequence[CrawlMetrics]) -> Any:
    """The day's DataFrame; without a seller it still has its columns."""
    names = [column.name for column in METRIC_COLUMNS["dagster/column_schema"].columns]
    return library("pandas").DataFrame([as_row(one) for one in rows], columns=names)


def preview_of(rows: Sequence[CrawlMetrics]) -> str:
    """The sellers with most to do, as a table for the materialization's page."""
    largest = sorted(rows, key=lambda one: (-one.counts.tasks_total, -one.counts.change_sets, one.counts.seller_id))
    lines = [
        "| seller | ok % | progress % | tasks | failed | requests | 429s | versions | delivered | median h | max h |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for one in largest[:SHOWN_ROWS]:
        c = one.counts
        seller = c.seller_id.replace("|", "\\|")
        lines.append(
            f"| {seller} | {one.success_rate:.2f} | {one.progress_rate:.2f} | {c.tasks_total} | {c.tasks_failed} "
            f"| {c.requests} | {c.throttled} | {c.change_sets} | {c.delivered} | {_hours(c.delivery_median_hours)} "
            f"| {_hours(c.delivery_max_hours)} |"
        )
    return "\n".join(lines)


def _hours(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


@dg.asset(
    deps=[
        dg.AssetDep(key, partition_mapping=dg.AllPartitionMapping())
        for key in ("product_change_sets", "product_server")
    ],
    partitions_def=days,
    group_name="metrics",
    owners=OWNERS,
    kinds={"python", "postgres", "pandas", "parquet"},
    code_version="1",
    io_manager_key="lake",
    retry_policy=RETRY_TRANSIENT,
    metadata=METRIC_COLUMNS,
)
def daily_crawl_metrics(context: dg.AssetExecutionContext, database: BusinessDatabase) -> dg.MaterializeResult[Any]:
    """What each seller's day (00:00-24:00 in Seoul) came to: success, progress, tasks by state, requests and 429s,
    changes by type, how long changes took to the product server, and how long fetches took. Any past day can be
    computed again."""
    day = date.fromisoformat(context.partition_key)
    with readable_failures():
        rows = metrics_of(database.open(), day)
        frame = frame_of(rows)
    totals = {name: value for name, value in asdict(sums(rows)).items() if value is not None}
    content = repr([as_row(one) for one in rows]).encode()
    return dg.MaterializeResult(
        value=frame,
        metadata={
            "dagster/partition_row_count": len(rows),
            **totals,
            **LINEAGE,
            "largest sellers": dg.MetadataValue.md(preview_of(rows)),
        },
        data_version=dg.DataVersion(md5(content, usedforsecurity=False).hexdigest()),
    )


measure_days = dg.define_asset_job(
    MEASURING_JOB,
    selection=dg.AssetSelection.assets(daily_crawl_metrics),
    description="The numbers of one day in Seoul, of every seller.",
    tags=HOUSEKEEPING,
    executor_def=dg.in_process_executor,
)


@dg.schedule(
    job=measure_days,
    cron_schedule="10 0 * * *",
    execution_timezone=SEOUL,
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Computes yesterday's metrics, those of days that an outage left out, and again those of earlier days "
    "whose crawls have gone on since.",
)
def daily_metrics(context: dg.ScheduleEvaluationContext, database: BusinessDatabase) -> list[dg.RunRequest]:
    # The daemon tells the time in the schedule's own zone, a tick from the UI in whichever it likes.
    tick = context.scheduled_execution_time.astimezone(ZoneInfo(SEOUL))
    measured = {date.fromisoformat(key) for key in context.instance.get_materialized_partitions(DAY_METRICS)}
    computed = [day.isoformat() for day in days_to_compute(database.open(), tick, measured)]
    return [dg.RunRequest(run_key=f"{day}:{tick:%Y-%m-%d}", partition_key=day) for day in computed if day >= FIRST_DAY]
