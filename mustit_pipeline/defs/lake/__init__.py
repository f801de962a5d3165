"""The catalogue and every change, as files in the lake."""

import dagster as dg

from mustit_pipeline.defs.lake.exports import daily_lake, export_days, product_catalog, product_changes

defs = dg.Definitions(assets=[product_catalog, product_changes], jobs=[export_days], schedules=[daily_lake])
