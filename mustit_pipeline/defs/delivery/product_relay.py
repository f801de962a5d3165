"""The product server, and the relay that sends it every version of a product."""

from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime

import dagster as dg

from mustit_pipeline.defs.failures import PermanentFailure, TransientFailure, readable_failures
from mustit_pipeline.defs.metadata import OWNERS, Stopwatch, columns, lineage
from mustit_pipeline.defs.partitions import sellers
from mustit_pipeline.defs.resources import RESOURCES, BusinessDatabase, SettingsResource
from mustit_pipeline.defs.run_tags import FIRST
from mustit_pipeline.delivery.relay import RelayReport, relay
from mustit_pipeline.delivery.sql.deliveries import seller_deliveries
from mustit_pipeline.foundation.clock import utc_now

# A relay may go on for an hour (RELAY_RUN_SECONDS) before it ends by itself.
RELAY = {**FIRST, "dagster/max_runtime": str(2 * 3600)}
RELAY_RETRIES = 3
RELAY_RETRY_SECONDS = 2.0

DELIVERED = lineage(
    sellerId="product_change_sets.seller_id",
    itemNo="product_change_sets.item_no",
    version="product_change_sets.version",
    productData="product_change_sets.product_data",
)
product_server = dg.AssetSpec(
    "product_server",
    deps=["product_change_sets"],
    description="The external product server: every version of a product, sent once and in order by the relay. "
    "Its checks say each hour whether what was published is sound and has arrived.",
    group_name="delivery",
    owners=OWNERS,
    kinds={"http"},
    partitions_def=sellers,
    metadata=columns(
        sellerId=("string", "The seller's id"),
        itemNo=("integer", "The product"),
        version=("integer", "The version that the server has; it only grows"),
        productData=("json", "The whole product at this version, null once it is deleted"),
    ),
)


class RelayConfig(dg.Config):
    """How a relay behaves."""

    patience_seconds: float = 0.0


# Without a RetryPolicy: Dagster obeys one also where the run is asked to stop, and would send on.
@dg.op(out=dg.Out(dict[str, int]), description="Send what waits in the product outbox and record it for each seller.")
def relay_waiting_events(
    context: dg.OpExecutionContext, config: RelayConfig, settings: SettingsResource, database: BusinessDatabase
) -> Iterator[dg.Output[dict[str, int]]]:
    watch, began, report = Stopwatch(), utc_now(), RelayReport()
    try:
        with readable_failures():
            relay(database.open(), settings.read(), patience_seconds=config.patience_seconds, report=report)
    except TransientFailure as failure:
        record_deliveries(context, database, report, began, watch)
        raise dg.RetryRequested(RELAY_RETRIES, RELAY_RETRY_SECONDS * 2**context.retry_number) from failure
    except Exception:
        record_deliveries(context, database, report, began, watch)
        raise
    except BaseException:
        # It was asked to stop: what it has sent by then is recorded all the same.
        yield record_totals(context, database, report, began, watch)
        raise
    yield record_totals(context, database, report, began, watch)


def record_totals(
    context: dg.OpExecutionContext, database: BusinessDatabase, report: RelayReport, began: datetime, watch: Stopwatch
) -> dg.Output[dict[str, int]]:
    """What a relay did, once it is recorded."""
    record_deliveries(context, database, report, began, watch)
    totals = {
        "sent": report.sent,
        "superseded": report.superseded,
        "failed": report.failed,
        "waiting": report.waiting,
    }
    return dg.Output(totals, metadata={**totals})


def record_deliveries(
    context: dg.OpExecutionContext, database: BusinessDatabase, report: RelayReport, began: datetime, watch: Stopwatch
) -> None:
    """One materialization of the product server for each seller of whom something was sent."""
    if not report.sent_by_seller:
        return
    with readable_failures(), database.open().reading() as connection:
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
