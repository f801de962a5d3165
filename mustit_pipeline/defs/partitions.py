"""How the assets are cut: one partition per seller, and one per day in Seoul for what sums them up."""

import dagster as dg

from mustit_pipeline.monitoring.metrics import SEOUL

SELLERS = "sellers"
FIRST_DAY = "2025-01-01"

sellers = dg.DynamicPartitionsDefinition(name=SELLERS)
days = dg.DailyPartitionsDefinition(start_date=FIRST_DAY, timezone=SEOUL)
