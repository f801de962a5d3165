"""Success criteria, quality of the data, and alerts."""

import dagster as dg

from mustit_pipeline.defs.monitoring.alerts import run_failures
from mustit_pipeline.defs.monitoring.checks import check_criteria, check_every_hour, criteria, first_check

defs = dg.Definitions(
    asset_checks=[criteria],
    jobs=[check_criteria],
    sensors=[run_failures, first_check],
    schedules=[check_every_hour],
)
