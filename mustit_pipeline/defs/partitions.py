"""How the assets are cut: one partition per seller, and one per day in Seoul for what sums them up."""

import dagster as dg

from mustit_pipeline.monitoring.metrics import SEOUL

SELLERS = "sellers"
FIRST_DAY = "2025-01-01"
# The assets that are cut by day, and their jobs: a run of them has a partition, but no seller.
DAY_METRICS = dg.AssetKey("daily_crawl_metrics")
DAY_CATALOG, DAY_CHANGES = dg.AssetKey("product_catalog"), dg.AssetKey("product_changes")
MEASURING_JOB, EXPORTING_JOB = "measure_days", "export_days"
_LAKE = frozenset({DAY_CATALOG, DAY_CHANGES})
_BY_DAY = _LAKE | {DAY_METRICS}

sellers = dg.DynamicPartitionsDefinition(name=SELLERS)
days = dg.DailyPartitionsDefinition(start_date=FIRST_DAY, timezone=SEOUL)


def exports_a_day(run: dg.DagsterRun) -> bool:
    """Whether a run writes nothing but the lake's catalogue and changes of a day."""
    return run.job_name == EXPORTING_JOB or _only(run, _LAKE)


def is_of_a_day(run: dg.DagsterRun) -> bool:
    """Whether a run's partition is a day; then it keeps no seller busy."""
    return run.job_name in (MEASURING_JOB, EXPORTING_JOB) or _only(run, _BY_DAY)


def _only(run: dg.DagsterRun, assets: frozenset[dg.AssetKey]) -> bool:
    return bool(run.asset_selection) and run.asset_selection <= assets
