"""Crawls of sellers: their partitions and assets, the job that works on a slice, and what starts it."""

import dagster as dg

from mustit_pipeline.defs.crawl import change_sets, due, listings, partition_sync, products, triggers

defs = dg.Definitions(
    assets=[
        listings.mustit_marketplace,
        listings.minishop_listings,
        products.products,
        change_sets.product_change_sets,
    ],
    jobs=[due.crawl_seller],
    sensors=[partition_sync.seller_partitions, due.due_crawls, triggers.sqs_triggers],
    schedules=[due.weekly_full_refresh],
)
