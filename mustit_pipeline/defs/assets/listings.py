"""The sweep of a seller's listing."""

import dagster as dg

from mustit_pipeline.defs.failures import readable_failures
from mustit_pipeline.defs.metadata import OWNERS, columns, content_of, lineage, work_metadata
from mustit_pipeline.defs.partitions import sellers
from mustit_pipeline.defs.resources import Pipeline
from mustit_pipeline.defs.slices import CrawlConfig, find_crawl, seconds_left

LINEAGE = lineage(
    seller_id="mustit_marketplace.sellerId",
    item_no="mustit_marketplace.listing",
    last_seen_execution_id="mustit_marketplace.listing",
    last_seen_at="mustit_marketplace.listing",
)


@dg.asset(
    deps=["mustit_marketplace"],
    partitions_def=sellers,
    group_name="crawl",
    owners=OWNERS,
    kinds={"python", "http", "postgres"},
    code_version="1",
    pool="marketplace",
    metadata=columns(
        seller_id=("text", "The seller whose listing was swept"),
        item_no=("bigint", "A product that the listing shows"),
        last_seen_execution_id=("uuid", "The execution whose sweep saw it last"),
        last_seen_at=("timestamptz", "When that was"),
    ),
)
def minishop_listings(
    context: dg.AssetExecutionContext, config: CrawlConfig, pipeline: Pipeline
) -> dg.MaterializeResult:
    """Every product that a seller's minishop listing shows, swept page by page; products seen for the first time are
    planned for fetching, products that vanished are counted as absent."""
    with readable_failures():
        crawl = find_crawl(context, config, pipeline)
        report = crawl.sweep(seconds_left(context, pipeline))
    stored = crawl.now()
    content = content_of(pipeline.database, context.partition_key)
    listed = stored.listed_count or 0
    return dg.MaterializeResult(
        metadata={
            **work_metadata(report, stored),
            **LINEAGE,
            "dagster/partition_row_count": listed,
            "coverage_percent": round(min(100.0, 100.0 * content.listed_rows / listed), 2) if listed else 100.0,
            "sweep": stored.sweep_status.value,
        },
        data_version=dg.DataVersion(content.listing),
    )
