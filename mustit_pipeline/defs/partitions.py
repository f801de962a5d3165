"""How the assets are cut: one partition per seller, and one per day in Seoul for what sums them up."""

import dagster as dg

from mustit_pipeline.monitoring.metrics import SEOUL

SELLERS = "sellers"
FIRST_DAY = "2025-01-01"
# The one asset that is cut by day, and its job: a run of it has a partition, but no seller.
DAY_METRICS = dg.AssetKey("daily_crawl_metrics")
MEASURING_JOB = "measure_days"
_BY_DAY = frozenset({DAY_METRICS})

sellers = dg.DynamicPartitionsDefinition(name=SELLERS)
days = dg.DailyPartitionsDefinition(start_date=FIRST_DAY, timezone=SEOUL)


def measures_a_day(run: dg.DagsterRun) -> bool:
    """Whether a run's partition is a day; then it keeps no seller busy."""
    return run.job_name == MEASURING_JOB or run.asset_selection == _BY_DAY
