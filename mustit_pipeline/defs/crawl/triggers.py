"""Crawls that others ask for through an SQS queue."""

import dagster as dg

from mustit_pipeline.aws.trigger_queue import TriggerQueue
from mustit_pipeline.defs.failures import readable_failures
from mustit_pipeline.defs.resources import BusinessDatabase, SettingsResource
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.scheduling.triggers import take_triggers


@dg.sensor(
    minimum_interval_seconds=10,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Turns messages of MUSTIT_TRIGGER_QUEUE_URL into open crawls, once each, which due_crawls then starts; "
    "parks those that cannot be followed.",
)
def sqs_triggers(
    context: dg.SensorEvaluationContext, settings: SettingsResource, database: BusinessDatabase
) -> dg.SkipReason:
    url = settings.read().trigger_queue_url
    if url is None:
        return dg.SkipReason("off: MUSTIT_TRIGGER_QUEUE_URL is not set")
    with readable_failures():
        taken = take_triggers(database.open(), settings.read(), TriggerQueue(settings.read(), url), utc_now)
    if taken.parked:
        context.log.warning(f"{taken}: see `mustit triggers list`")
    return dg.SkipReason(str(taken))
