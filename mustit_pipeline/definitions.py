"""The one composition root: what each capability defines, put together."""

import dagster as dg

from mustit_pipeline.defs import crawl, delivery, lake, metrics, monitoring, resources, upkeep

defs = dg.Definitions.merge(
    resources.defs, crawl.defs, delivery.defs, lake.defs, metrics.defs, monitoring.defs, upkeep.defs
)
