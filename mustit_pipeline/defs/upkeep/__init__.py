"""Recovery of stuck work, and the night's housekeeping."""

import dagster as dg

from mustit_pipeline.defs.upkeep.maintenance import maintain_storage, nightly_maintenance
from mustit_pipeline.defs.upkeep.recovery import recover_every_minute, recover_stuck_work

defs = dg.Definitions(
    jobs=[recover_stuck_work, maintain_storage],
    schedules=[recover_every_minute, nightly_maintenance],
)
