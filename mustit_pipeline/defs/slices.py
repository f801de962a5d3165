"""How a run finds the crawl that it works on, and how much of its slice is left."""

import time

import dagster as dg
from pydantic import Field

from mustit_pipeline.crawling.crawl import Crawl
from mustit_pipeline.crawling.executions import open_or_join
from mustit_pipeline.crawling.worker import utc_now
from mustit_pipeline.defs.resources import Pipeline
from mustit_pipeline.domain.errors import Conflict
from mustit_pipeline.domain.states import ExecutionStatus
from mustit_pipeline.domain.values import SellerId


class CrawlConfig(dg.Config):
    """What a launched crawl is asked to do; an open crawl that is joined keeps its own plan."""

    full_refetch: bool = Field(False, description="Refetch every product, whatever the recrawl policy says")
    product_limit: int | None = Field(None, description="Fetch only so many products; such a sweep deletes nothing")
    triggered_by: str = Field("dagster", description="Who asked for it, as shown with the execution")


def find_crawl(context: dg.AssetExecutionContext, config: CrawlConfig, pipeline: Pipeline) -> Crawl:
    """The open crawl of the run's seller, opened where there is none."""
    opened = open_or_join(
        pipeline.database,
        SellerId(context.partition_key),
        triggered_by=config.triggered_by,
        now=utc_now(),
        full_refetch=config.full_refetch,
        product_limit=config.product_limit,
    )
    if opened.stored.execution.status is ExecutionStatus.PAUSED:
        raise Conflict(
            "CONFLICT_EXECUTION_PAUSED",
            korean=f"일시정지된 실행입니다: {opened.stored.execution.id}",
            english=f"The crawl {opened.stored.execution.id} is PAUSED: resume it with `mustit execution resume`",
        )
    context.log.info(f"{'joined' if opened.joined else 'opened'} execution {opened.stored.execution.id}")
    return Crawl(pipeline.database, pipeline.settings, opened.stored)


def seconds_left(context: dg.AssetExecutionContext, pipeline: Pipeline) -> float:
    """What is left of this run's slice."""
    record = context.instance.get_run_record_by_id(context.run_id)
    started = record.start_time if record is not None and record.start_time is not None else time.time()
    return max(0.0, pipeline.settings.crawl_slice_seconds - (time.time() - started))
