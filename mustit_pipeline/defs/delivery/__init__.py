"""Product events on their way to the product server, and schedule changes on theirs to EventBridge."""

import dagster as dg

from mustit_pipeline.defs.delivery.product_relay import product_server, relay_product_outbox
from mustit_pipeline.defs.delivery.rule_relay import relay_scheduler_outbox
from mustit_pipeline.defs.delivery.waiting import relay_every_5_minutes, waiting_outbox

defs = dg.Definitions(
    assets=[product_server],
    jobs=[relay_product_outbox, relay_scheduler_outbox],
    sensors=[waiting_outbox],
    schedules=[relay_every_5_minutes],
)
