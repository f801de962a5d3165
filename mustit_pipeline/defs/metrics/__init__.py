"""The numbers of each day, as files in the lake."""

import dagster as dg

from mustit_pipeline.defs.metrics.daily import daily_crawl_metrics, daily_metrics, measure_days
from mustit_pipeline.defs.metrics.parquet_files import ParquetLake
from mustit_pipeline.defs.resources import SettingsResource

defs = dg.Definitions(
    assets=[daily_crawl_metrics],
    jobs=[measure_days],
    schedules=[daily_metrics],
    resources={"lake": ParquetLake(settings=SettingsResource())},
)
