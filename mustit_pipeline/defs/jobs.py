"""The jobs that runs are made of."""

from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime

import dagster as dg

from mustit_pipeline.defs.assets.external import DELIVERED
from mustit_pipeline.defs.failures import RETRY_TRANSIENT, PermanentFailure, TransientFailure, readable_failures
from mustit_pipeline.defs.liveness import MEASURING_JOB, busy_sellers, take_census
from mustit_pipeline.defs.metadata import Stopwatch
from mustit_pipeline.defs.resources import RESOURCES, Pipeline
from mustit_pipeline.defs.slices import PRIORITY_TAG
from mustit_pipeline.delivery.relay import RelayReport, relay
from mustit_pipeline.delivery.sql.deliveries import seller_deliveries
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.upkeep.recovery import recover

# Short, and others wait for them: they go before every crawl, however many of those a backfill has queued.
# One that hangs would keep its successors from starting; leases keep it from doing harm once it wakes up.
FIRST = {PRIORITY_TAG: "10", "dagster/max_runtime": str(3600)}
# A relay may go on for an hour (RELAY_RUN_SECONDS) before it ends by itself.
RELAY = {**FIRST, "dagster/max_runtime": str(2 * 3600)}
# Long, and nobody waits for them: one at a time (dagster.yaml), so that they leave room for those.
# One that hangs would keep all others waiting.
HOUSEKEEPING = {"mustit/housekeeping": "yes", "dagster/max_runtime": str(2 * 3600)}
RELAY_RETRIES = 3
RELAY_RETRY_SECONDS = 2.0
CRAWL_ASSETS = ["minishop_listings", "product_details", "product_options", "product_change_sets"]

crawl_seller = dg.define_asset_job(
    "crawl_seller",
    selection=dg.AssetSelection.assets(*CRAWL_ASSETS),
    description="One slice of one seller's crawl: sweep the listing, fetch products, write change sets.",
    executor_def=dg.in_process_executor,
)

measure_days = dg.define_asset_job(
    MEASURING_JOB,
    selection=dg.AssetSelection.assets("daily_crawl_metrics"),
    description="The numbers of one day in Seoul, of every seller.",
    tags=HOUSEKEEPING,
    executor_def=dg.in_process_executor,
)


class RelayConfig(dg.Config):
    """How a relay behaves."""

    patience_seconds: float = 0.0


# Without a RetryPolicy: Dagster obeys one also where the run is asked to stop, and would send on.
@dg.op(out=dg.Out(dict[str, int]), description="Send what waits in the product outbox and record it for each seller.")
def relay_waiting_events(
    context: dg.OpExecutionContext, config: RelayConfig, pipeline: Pipeline
) -> Iterator[dg.Output[dict[str, int]]]:
    watch, began, report = Stopwatch(), utc_now(), RelayReport()
    try:
        with readable_failures():
            relay(pipeline.database, pipeline.settings, patience_seconds=config.patience_seconds, report=report)
    except TransientFailure as failure:
        record_deliveries(context, pipeline, report, began, watch)
        raise dg.RetryRequested(RELAY_RETRIES, RELAY_RETRY_SECONDS * 2**context.retry_number) from failure
    except Exception:
        record_deliveries(context, pipeline, report, began, watch)
        raise
    except BaseException:
        # It was asked to stop: what it has sent by then is recorded all the same.
        yield recorded_totals(context, pipeline, report, began, watch)
        raise
    yield recorded_totals(context, pipeline, report, began, watch)


def recorded_totals(
    context: dg.OpExecutionContext, pipeline: Pipeline, report: RelayReport, began: datetime, watch: Stopwatch
) -> dg.Output[dict[str, int]]:
    """What a relay did, once it is recorded."""
    record_deliveries(context, pipeline, report, began, watch)
    totals = {
        "sent": report.sent,
        "superseded": report.superseded,
        "failed": report.failed,
        "waiting": report.waiting,
    }
    return dg.Output(totals, metadata={**totals})


def record_deliveries(
    context: dg.OpExecutionContext, pipeline: Pipeline, report: RelayReport, began: datetime, watch: Stopwatch
) -> None:
    """One materialization of the product server for each seller of whom something was sent."""
    if not report.sent_by_seller:
        return
    with readable_failures(), pipeline.database.reading() as connection:
        found = seller_deliveries(connection, report.sent_by_seller, began)
    for seller_id, sent in sorted(report.sent_by_seller.items()):
        metadata = {
            "events_sent": sent,
            **asdict(found[seller_id]),
            **DELIVERED,
            # A relay sends for all sellers at once: the time is that of all.
            "duration_seconds": watch.seconds,
        }
        context.log_event(dg.AssetMaterialization("product_server", partition=seller_id, metadata=metadata))


@dg.op(description="Turn the run red where an event became FAILED; everything else has been sent by then.")
def refuse_failed_events(totals: dict[str, int]) -> None:
    if totals["failed"]:
        raise PermanentFailure(
            f"{totals['failed']} events became FAILED: `mustit outbox list --status FAILED` says why"
        )


@dg.job(
    description="Sends waiting product events, once each and in order.",
    tags=RELAY,
    resource_defs=RESOURCES,
    executor_def=dg.in_process_executor,
)
def relay_product_outbox() -> None:
    refuse_failed_events(relay_waiting_events())


@dg.op(
    description="Set free what somebody left behind: tasks, crawls, events, agents and fetched changes; fail runs "
    "without a process.",
    retry_policy=RETRY_TRANSIENT,
)
def recover_what_is_stuck(context: dg.OpExecutionContext, pipeline: Pipeline) -> dict[str, int]:
    with readable_failures():
        census = take_census(context.instance, pipeline)
        recovered = recover(pipeline.database, pipeline.settings, utc_now, busy=busy_sellers(census.alive))
    totals = {
        "released_tasks": recovered.tasks,
        "completed_executions": recovered.executions,
        "released_events": recovered.events,
        "recovered_agents": recovered.agents,
        "processed_sellers": recovered.sellers,
        "failed_runs": len(census.dead),
    }
    context.add_output_metadata(totals)
    return totals


@dg.job(
    description="Recovers expired leases, crawls that were never ended, events without a sender, rested agents, and "
    "fetched changes that nobody processed.",
    tags=FIRST,
    executor_def=dg.in_process_executor,
)
def recover_stuck_work() -> None:
    recover_what_is_stuck()
