"""Schedule changes on their way to EventBridge, where it is EventBridge that starts due crawls."""

import dagster as dg
from pydantic import Field

from mustit_pipeline.aws.rule_relay import relay_rules
from mustit_pipeline.defs.failures import RETRY_TRANSIENT, PermanentFailure, readable_failures
from mustit_pipeline.defs.resources import RESOURCES, BusinessDatabase, SettingsResource
from mustit_pipeline.defs.run_tags import FIRST
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.sellers import registry
from mustit_pipeline.sellers.sql import scheduler_outbox


class RuleRelayConfig(dg.Config):
    """How a relay of schedules behaves."""

    everything: bool = Field(
        False, description="Tell of every schedule anew: after a change of the target, or to try FAILED ones again"
    )


@dg.op(description="Make EventBridge's rules what the schedules say.", retry_policy=RETRY_TRANSIENT)
def relay_schedule_changes(
    context: dg.OpExecutionContext, config: RuleRelayConfig, settings: SettingsResource, database: BusinessDatabase
) -> None:
    with readable_failures():
        if config.everything:
            registry.resend(database.open(), utc_now())
        if settings.read().trigger != "eventbridge":
            with database.open().reading() as connection:
                waiting = scheduler_outbox.counts(connection).waiting
            context.log.info(
                f"nothing to relay: MUSTIT_TRIGGER is {settings.read().trigger}. The newest change of {waiting} "
                "schedules is kept for EventBridge"
            )
            context.add_output_metadata({"applied": 0, "waiting": waiting})
            return
        relayed = relay_rules(database.open(), settings.read(), utc_now)
    (context.log.warning if relayed.last_error else context.log.info)(str(relayed))
    if relayed.failed:
        raise PermanentFailure(f"{relayed}. Mend that, then run relay_scheduler_outbox with `everything: true`")
    context.add_output_metadata({"applied": relayed.applied, "retried": relayed.retried, "waiting": relayed.waiting})


@dg.job(
    description="Tells EventBridge of schedules that changed (MUSTIT_TRIGGER=eventbridge).",
    tags=FIRST,
    resource_defs=RESOURCES,
    executor_def=dg.in_process_executor,
)
def relay_scheduler_outbox() -> None:
    relay_schedule_changes()
