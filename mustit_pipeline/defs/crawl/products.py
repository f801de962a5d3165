"""Details and options of a seller's products: two assets around one worker loop."""

from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg

from mustit_pipeline.crawling.result_buffer import WorkReport
from mustit_pipeline.defs.crawl.slices import CrawlConfig, find_crawl, replays, seconds_left, sweeps
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
from mustit_pipeline.domain.states import TaskType

SOURCES = {"product_details": TaskType.PRODUCT_DETAIL, "product_options": TaskType.PRODUCT_OPTION}
RAW_COLUMNS = columns(
    seller_id=("text", "The seller"),
    item_no=("bigint", "The product"),
    body=("text", "The marketplace's answer as received"),
    status=("text", "PENDING, PROCESSED or FAILED"),
    fetched_at=("timestamptz", "When it was fetched"),
)

BODIES = {"product_details": "detail", "product_options": "options"}


def _spec(key: str, description: str) -> dg.AssetSpec:
    return dg.AssetSpec(
        key,
        deps=["minishop_listings"],
        description=description,
        skippable=True,
        group_name="crawl",
        owners=OWNERS,
        kinds={"python", "http", "postgres"},
        code_version="1",
        metadata=RAW_COLUMNS,
    )


@dg.multi_asset(
    specs=[
        _spec("product_details", "The detail page of each product: prices, stock, category, shipping, description."),
        _spec("product_options", "The options of each product: colour, size, stock. None is a valid answer."),
    ],
    partitions_def=sellers,
    can_subset=True,
)
def products(
    context: dg.AssetExecutionContext,
    config: CrawlConfig,
    settings: SettingsResource,
    database: BusinessDatabase,
) -> Iterator[dg.MaterializeResult]:
    """Fetch details and options product by product; one of them alone refetches just that, for known products."""
    watch = Stopwatch()
    selected = sorted(key.to_user_string() for key in context.selected_asset_keys)
    types = [SOURCES[key] for key in selected]
    with readable_failures():
        crawl = find_crawl(context, config, database.open(), settings.read())
        report = WorkReport()
        if not replays(context):
            if not sweeps(context):
                crawl.plan_known_products(types)
            report = crawl.fetch_products(types, seconds_left(context, settings.read()))
    stored = crawl.reload()
    content = content_of(database.open(), context.partition_key)
    held = {
        "product_details": (content.details, content.detail_rows),
        "product_options": (content.options, content.option_rows),
    }
    for key in selected:
        version, rows = held[key]
        yield dg.MaterializeResult(
            asset_key=key,
            metadata={
                **work_metadata(report.of(SOURCES[key]), crawl.remaining([SOURCES[key]]), stored),
                **console_links(settings.read(), stored),
                **column_lineage(key),
                "dagster/partition_row_count": rows,
                "coverage_percent": coverage_percent(rows, content.listed_rows),
                "replayed": replays(context),
                # Both are fetched in one loop: the time is that of both.
                "duration_seconds": watch.seconds,
            },
            data_version=dg.DataVersion(version),
        )


def column_lineage(key: str) -> Mapping[str, Any]:
    """Where the columns of a fetched source come from."""
    body = f"mustit_marketplace.{BODIES[key]}"
    return lineage(
        seller_id="minishop_listings.seller_id",
        item_no="minishop_listings.item_no",
        body=body,
        status=body,
        fetched_at=body,
    )
