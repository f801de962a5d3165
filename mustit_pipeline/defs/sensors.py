"""What starts by itself: partitions follow the registry, crawls start when due, events go out when they wait."""

from collections.abc import Collection
from dataclasses import dataclass

import dagster as dg

from mustit_pipeline.defs.crashes import resting_sellers
from mustit_pipeline.defs.jobs import crawl_seller, relay_product_outbox
from mustit_pipeline.defs.liveness import busy_sellers, unfinished_runs
from mustit_pipeline.defs.partitions import SELLERS
from mustit_pipeline.defs.resources import Pipeline
from mustit_pipeline.defs.rule_relay import relay_scheduler_outbox
from mustit_pipeline.defs.slices import slice_requests, without_backfills, without_waiting_backfills
from mustit_pipeline.delivery.credential import fingerprint
from mustit_pipeline.delivery.relay import BREAKER
from mustit_pipeline.delivery.sql import breakers
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.outbox.sql import outbox
from mustit_pipeline.scheduling.due import next_slices
from mustit_pipeline.scheduling.sql.next_sellers import count_next_sellers
from mustit_pipeline.sellers.sql import scheduler_outbox, sellers


@dataclass(frozen=True, slots=True)
class PartitionChanges:
    """What makes the partitions equal to the registry."""

    add: list[str]
    remove: list[str]


def partition_changes(
    registered: Collection[str], partitions: Collection[str], busy: Collection[str]
) -> PartitionChanges:
    """Add what is registered; remove what is not, but never under a run."""
    add = sorted(set(registered) - set(partitions))
    remove = sorted(set(partitions) - set(registered) - set(busy))
    return PartitionChanges(add, remove)


@dg.sensor(
    minimum_interval_seconds=30,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Keeps the partitions equal to the registered sellers, in bulk.",
)
def seller_partitions(context: dg.SensorEvaluationContext, pipeline: Pipeline) -> dg.SkipReason:
    # The registry last: whoever is registered or started meanwhile keeps its partition.
    partitions = context.instance.get_dynamic_partitions(SELLERS)
    busy = busy_sellers(unfinished_runs(context.instance, pipeline))
    with pipeline.database.reading() as connection:
        registered = sellers.all_ids(connection)
    changes = partition_changes(registered, partitions, busy)
    if changes.add:
        context.instance.add_dynamic_partitions(SELLERS, changes.add)
    for key in changes.remove:
        context.instance.delete_dynamic_partition(SELLERS, key)
    return dg.SkipReason(
        f"{len(registered)} sellers registered; {len(changes.add)} partitions added, {len(changes.remove)} removed"
    )


@dg.sensor(
    job_name=crawl_seller.name,
    # Small crawls end in a second: slots should not stand empty for long.
    minimum_interval_seconds=5,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Starts crawls that are due and continues those whose slice has ended, as slots are free.",
)
def due_crawls(context: dg.SensorEvaluationContext, pipeline: Pipeline) -> dg.SensorResult | dg.SkipReason:
    runs = unfinished_runs(context.instance, pipeline)
    busy = busy_sellers(without_waiting_backfills(runs))
    slots = pipeline.settings.crawls_at_once
    free = slots - len(busy_sellers(without_backfills(runs)))
    if free <= 0:
        return dg.SkipReason(f"all {slots} crawl slots are busy: {', '.join(sorted(busy)[:10])}")
    now = utc_now()
    resting = resting_sellers(context.instance, pipeline, now, busy=busy)
    rest = "".join(f"; {seller_id} rests: {why}" for seller_id, why in sorted(resting.items()))
    # Otherwise a rule of EventBridge does, by a message that sqs_triggers takes.
    by_interval = pipeline.settings.trigger == "dagster"
    slices = next_slices(
        pipeline.database,
        busy=busy | resting.keys(),
        free=free,
        now=now,
        slice_seconds=pipeline.settings.crawl_slice_seconds,
        by_interval=by_interval,
    )
    if not slices:
        due = "no seller is due" if by_interval else "EventBridge says who is due"
        return dg.SkipReason(f"{due} and no crawl waits to be continued; {len(busy)} running{rest}")
    started = sorted(entry.seller_id for entry in slices)
    with pipeline.database.reading() as connection:
        waiting = count_next_sellers(connection, busy={*busy, *resting, *started}, by_interval=by_interval)
    tell = context.log.warning if resting else context.log.info
    tell(f"{len(started)} slices requested: {', '.join(started[:10])}; {waiting} sellers wait for a free slot{rest}")
    return dg.SensorResult(run_requests=slice_requests(context.instance, slices))


@dg.sensor(
    jobs=[relay_product_outbox, relay_scheduler_outbox],
    minimum_interval_seconds=15,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Sends product events as soon as they wait, and schedule changes where EventBridge starts crawls; one "
    "relay of each at a time is enough.",
)
def waiting_outbox(context: dg.SensorEvaluationContext, pipeline: Pipeline) -> dg.SensorResult | dg.SkipReason:
    found = {relay_product_outbox.name: why_no_event_is_sent(pipeline)}
    if pipeline.settings.trigger == "eventbridge":
        found[relay_scheduler_outbox.name] = _why_no_rule_is_sent(pipeline)
    wanted = [name for name, why_not in found.items() if why_not is None]
    if wanted:
        busy = {run.job_name for run in unfinished_runs(context.instance, pipeline)}
        found |= {name: f"a run of {name} is running already" for name in wanted if name in busy}
    requests = [dg.RunRequest(job_name=name) for name, why_not in found.items() if why_not is None]
    if requests:
        return dg.SensorResult(run_requests=requests)
    return dg.SkipReason("; ".join(why_not for why_not in found.values() if why_not is not None))


def why_no_event_is_sent(pipeline: Pipeline) -> str | None:
    """What speaks against a relay now; None if nothing does."""
    with pipeline.database.reading() as connection:
        due_in = outbox.next_due_in(connection)
        breaker = breakers.find(connection, BREAKER)
        trial_in = breaker.trial_in_with(fingerprint(pipeline.settings))
    if due_in is None:
        return "no product event waits"
    if pipeline.settings.product_server_url is None:
        return "product events wait, but MUSTIT_PRODUCT_SERVER_URL is not set"
    if trial_in is not None and trial_in > 0:
        why = "is unreachable" if breaker.refused_credential is None else "refuses our token"
        return f"the product server {why}; it is tried again in {trial_in:.0f} s"
    if due_in > 0:
        return f"the next product event is due in {due_in:.0f} s"
    return None


def _why_no_rule_is_sent(pipeline: Pipeline) -> str | None:
    with pipeline.database.reading() as connection:
        due_in = scheduler_outbox.next_due_in(connection)
    if due_in is None:
        return "EventBridge knows every schedule"
    return f"the next schedule change is due in {due_in:.0f} s" if due_in > 0 else None
