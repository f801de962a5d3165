"""The one composition root."""

import dagster as dg

from mustit_pipeline.defs.alerts import run_failures
from mustit_pipeline.defs.assets.change_sets import product_change_sets
from mustit_pipeline.defs.assets.external import mustit_marketplace, product_server
from mustit_pipeline.defs.assets.listings import minishop_listings
from mustit_pipeline.defs.assets.metrics import daily_crawl_metrics
from mustit_pipeline.defs.assets.products import products
from mustit_pipeline.defs.checks import check_criteria, check_every_hour, criteria, first_check
from mustit_pipeline.defs.jobs import crawl_seller, measure_days, recover_stuck_work, relay_product_outbox
from mustit_pipeline.defs.lake import ParquetLake
from mustit_pipeline.defs.maintenance import maintain_storage
from mustit_pipeline.defs.resources import RESOURCES
from mustit_pipeline.defs.rule_relay import relay_scheduler_outbox
from mustit_pipeline.defs.schedules import (
    daily_metrics,
    nightly_maintenance,
    recover_every_minute,
    relay_every_5_minutes,
    weekly_full_refresh,
)
from mustit_pipeline.defs.sensors import due_crawls, seller_partitions, waiting_outbox
from mustit_pipeline.defs.triggers import sqs_triggers

defs = dg.Definitions(
    assets=[mustit_marketplace, minishop_listings, products, product_change_sets, product_server, daily_crawl_metrics],
    asset_checks=[criteria],
    jobs=[
        crawl_seller,
        relay_product_outbox,
        relay_scheduler_outbox,
        recover_stuck_work,
        maintain_storage,
        measure_days,
        check_criteria,
    ],
    sensors=[seller_partitions, due_crawls, waiting_outbox, sqs_triggers, run_failures, first_check],
    schedules=[
        relay_every_5_minutes,
        recover_every_minute,
        daily_metrics,
        nightly_maintenance,
        weekly_full_refresh,
        check_every_hour,
    ],
    resources={**RESOURCES, "lake": ParquetLake()},
    executor=dg.in_process_executor,
)
