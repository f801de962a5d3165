"""The one composition root: what each capability defines, put together."""

import dagster as dg

from mustit_pipeline.defs import crawl, delivery, lake, metrics, monitoring, resources, upkeep
from mustit_pipeline.foundation import logs

logs.configure_unless_done("info")
defs = dg.Definitions.merge(
    resources.defs, crawl.defs, delivery.defs, lake.defs, metrics.defs, monitoring.defs, upkeep.defs
)
