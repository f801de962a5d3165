"""When a relay is started: as soon as something waits that can be sent."""

from collections.abc import Collection, Mapping

import dagster as dg

from mustit_pipeline.defs.delivery.product_relay import relay_product_outbox
from mustit_pipeline.defs.delivery.rule_relay import relay_scheduler_outbox
from mustit_pipeline.defs.liveness import is_under_way, unfinished_runs
from mustit_pipeline.defs.resources import BusinessDatabase, SettingsResource
from mustit_pipeline.delivery.credential import fingerprint
from mustit_pipeline.delivery.sql import breakers
from mustit_pipeline.delivery.sql.breakers import PRODUCT_SERVER
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.monitoring.metrics import SEOUL
from mustit_pipeline.outbox.sql import outbox
from mustit_pipeline.sellers.sql import scheduler_outbox
from mustit_pipeline.settings import Settings


def why_no_event_is_sent(database: Database, settings: Settings) -> str | None:
    """What speaks against a relay now; None if nothing does."""
    with database.reading() as connection:
        due_in = outbox.next_due_in(connection)
        breaker = breakers.find(connection, PRODUCT_SERVER)
        trial_in = breaker.trial_in_with(fingerprint(settings))
    if due_in is None:
        return "no product event waits"
    if settings.product_server_url is None:
        return "product events wait, but MUSTIT_PRODUCT_SERVER_URL is not set"
    if trial_in is not None and trial_in > 0:
        why = "is unreachable" if breaker.refused_credential is None else "refuses our token"
        return f"the product server {why}; it is tried again in {trial_in:.0f} s"
    if due_in > 0:
        return f"the next product event is due in {due_in:.0f} s"
    return None


def why_no_rule_is_sent(database: Database) -> str | None:
    """What speaks against a relay of schedule changes now; None if nothing does."""
    with database.reading() as connection:
        due_in = scheduler_outbox.next_due_in(connection)
    if due_in is None:
        return "EventBridge knows every schedule"
    return f"the next schedule change is due in {due_in:.0f} s" if due_in > 0 else None


def one_at_a_time(obstacles: Mapping[str, str | None], *, running: Collection[str]) -> dict[str, str | None]:
    """What speaks against each relay, a run of it included."""
    return {
        name: f"a run of {name} is running already" if why_not is None and name in running else why_not
        for name, why_not in obstacles.items()
    }


@dg.sensor(
    jobs=[relay_product_outbox, relay_scheduler_outbox],
    minimum_interval_seconds=15,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Sends product events as soon as they wait, and schedule changes where EventBridge starts crawls; one "
    "relay of each at a time is enough.",
)
def waiting_outbox(
    context: dg.SensorEvaluationContext, settings: SettingsResource, database: BusinessDatabase
) -> dg.SensorResult | dg.SkipReason:
    obstacles = {relay_product_outbox.name: why_no_event_is_sent(database.open(), settings.read())}
    if settings.read().trigger == "eventbridge":
        obstacles[relay_scheduler_outbox.name] = why_no_rule_is_sent(database.open())
    if None in obstacles.values():
        runs = unfinished_runs(context.instance, database.open(), settings.read())
        obstacles = one_at_a_time(obstacles, running={run.job_name for run in runs.alive})
    requests = [dg.RunRequest(job_name=name) for name, why_not in obstacles.items() if why_not is None]
    if requests:
        return dg.SensorResult(run_requests=requests)
    return dg.SkipReason("; ".join(why_not for why_not in obstacles.values() if why_not is not None))


@dg.schedule(
    job=relay_product_outbox,
    cron_schedule="*/5 * * * *",
    execution_timezone=SEOUL,
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Sends waiting product events even if the sensor is off; starts no run while none can be sent.",
)
def relay_every_5_minutes(
    context: dg.ScheduleEvaluationContext, settings: SettingsResource, database: BusinessDatabase
) -> dg.RunRequest | dg.SkipReason:
    if is_under_way(context, database.open(), settings.read(), relay_product_outbox.name):
        return dg.SkipReason("a relay is running already")
    why_not = why_no_event_is_sent(database.open(), settings.read())
    return dg.RunRequest() if why_not is None else dg.SkipReason(why_not)
