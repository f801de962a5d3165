"""What runs by the clock."""

import dagster as dg

from mustit_pipeline.defs.jobs import relay_product_outbox

relay_every_5_minutes = dg.ScheduleDefinition(
    name="relay_every_5_minutes",
    job=relay_product_outbox,
    cron_schedule="*/5 * * * *",
    execution_timezone="Asia/Seoul",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Sends waiting product events even if the sensor is off.",
)
