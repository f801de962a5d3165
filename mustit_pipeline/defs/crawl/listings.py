"""The marketplace, and the sweep of a seller's listing."""

from dataclasses import replace

import dagster as dg

from mustit_pipeline.catalog.sql import deletions
from mustit_pipeline.catalog.sql.products import Sightings, sightings
from mustit_pipeline.crawling.result_buffer import WorkReport
from mustit_pipeline.crawling.sql.executions import StoredExecution
from mustit_pipeline.defs.crawl.slices import CrawlConfig, find_crawl, replays, seconds_left
from mustit_pipeline.defs.failures import readable_failures
from mustit_pipeline.defs.metadata import (
    OWNERS,
    Stopwatch,
    columns,
    console_links,
    content_of,
    coverage_percent,
    lineage,
    work_metadata,
)
from mustit_pipeline.defs.partitions import sellers
from mustit_pipeline.defs.resources import BusinessDatabase, SettingsResource
from mustit_pipeline.domain.states import HoldStatus, SweepStatus, TaskType
from mustit_pipeline.foundation.database import Database

mustit_marketplace = dg.AssetSpec(
    "mustit_marketplace",
    description="The Mustit marketplace (머스트잇): its sellers' minishop listings, product details and options. "
    "Its checks say each hour how well all sellers together are followed.",
    group_name="marketplace",
    owners=OWNERS,
    kinds={"http"},
    partitions_def=sellers,
    metadata=columns(
        sellerId=("string", "The seller's id"),
        listing=("json", "The pages of its minishop listing"),
        detail=("json", "The detail page of a product"),
        options=("json", "The options of a product"),
    ),
)

LINEAGE = lineage(
    seller_id="mustit_marketplace.sellerId",
    item_no="mustit_marketplace.listing",
    last_seen_execution_id="mustit_marketplace.listing",
    last_seen_at="mustit_marketplace.listing",
)
SWEEP_COMPLETE = dg.AssetCheckSpec(
    "sweep_complete",
    asset="minishop_listings",
    description="The sweep saw as many products as the marketplace counts and could read them all; otherwise it says "
    "nothing about absences.",
)
NO_HELD_DELETIONS = dg.AssetCheckSpec(
    "no_held_deletions",
    asset="minishop_listings",
    description="No deletions of this seller wait for a decision: `mustit deletions list`, then approve or reject.",
)


@dg.asset(
    deps=["mustit_marketplace"],
    partitions_def=sellers,
    group_name="crawl",
    owners=OWNERS,
    kinds={"python", "http", "postgres"},
    code_version="1",
    check_specs=[SWEEP_COMPLETE, NO_HELD_DELETIONS],
    metadata=columns(
        seller_id=("text", "The seller whose listing was swept"),
        item_no=("bigint", "A product that the listing shows"),
        last_seen_execution_id=("uuid", "The execution whose sweep saw it last"),
        last_seen_at=("timestamptz", "When that was"),
    ),
)
def minishop_listings(
    context: dg.AssetExecutionContext,
    config: CrawlConfig,
    settings: SettingsResource,
    database: BusinessDatabase,
) -> dg.MaterializeResult:
    """Every product that a seller's minishop listing shows, swept page by page; products seen for the first time are
    planned for fetching, products that vanished are counted as absent."""
    watch = Stopwatch()
    with readable_failures():
        crawl = find_crawl(context, config, database.open(), settings.read())
        report = WorkReport() if replays(context) else crawl.sweep(seconds_left(context, settings.read()))
    stored = crawl.reload()
    content = content_of(database.open(), context.partition_key)
    listed = stored.listed_count or 0
    seen = _seen(database.open(), stored)
    return dg.MaterializeResult(
        metadata={
            **work_metadata(report.of(TaskType.MINISHOP), report.remaining, stored),
            **console_links(settings.read(), stored),
            **LINEAGE,
            "dagster/partition_row_count": content.listed_rows,
            "coverage_percent": coverage_percent(content.listed_rows, listed),
            "new": seen.new,
            "absent": seen.absent,
            "skipped": stored.skipped_items,
            "foreign": stored.foreign_items,
            "sweep": stored.sweep_status.value,
            "replayed": replays(context),
            "duration_seconds": watch.seconds,
        },
        data_version=dg.DataVersion(content.listing),
        check_results=_checks(database.open(), stored),
    )


def _seen(database: Database, stored: StoredExecution) -> Sightings:
    """What the sweep saw for the first time, and what it missed; one that is not complete says nothing of that."""
    execution = stored.execution
    with database.reading() as connection:
        found = sightings(connection, execution.seller_id.value, execution.id.value, execution.created_at)
    return found if stored.sweep_status is SweepStatus.COMPLETE else replace(found, absent=0)


def _checks(database: Database, stored: StoredExecution) -> list[dg.AssetCheckResult]:
    """What an operator should look at: warnings, because nothing wrong goes out by any of it."""
    with database.reading() as connection:
        seller_id = stored.seller_id
        held = deletions.newest_holds(connection, status=HoldStatus.OPEN, seller_id=seller_id, limit=1).rows
    # A crawl of a part, and one that goes on in the next slice, promise no whole listing.
    partial = stored.sweep_status is SweepStatus.INCOMPLETE and stored.product_limit is None
    swept = {
        "sweep": stored.sweep_status.value,
        "listed": stored.listed_count or 0,
        "skipped": stored.skipped_items,
        "foreign": stored.foreign_items,
    }
    findings = {
        SWEEP_COMPLETE.name: (not partial, swept),
        NO_HELD_DELETIONS.name: (not held, {"held": sum(len(hold.item_nos) for hold in held)}),
    }
    return [
        dg.AssetCheckResult(
            check_name=name, passed=passed, severity=dg.AssetCheckSeverity.WARN, metadata=dict(metadata)
        )
        for name, (passed, metadata) in findings.items()
    ]
