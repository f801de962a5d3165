"""How a run finds the crawl that it works on, how much of its slice is left, and what that came to."""

import time
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

import dagster as dg
from pydantic import Field

from mustit_pipeline.crawling.crawl import Crawl
from mustit_pipeline.crawling.sql import executions, slices
from mustit_pipeline.crawling.sql.executions import StoredExecution
from mustit_pipeline.crawling.sql.slices import EndedSlice
from mustit_pipeline.crawling.steering import find, open_or_join
from mustit_pipeline.defs.partitions import SELLERS
from mustit_pipeline.defs.run_tags import (
    BACKFILL_TAG,
    BOUND_TAG,
    EXECUTION_TAG,
    PRIORITY_TAG,
    SLICE_PRIORITY,
    SLICE_TAG,
)
from mustit_pipeline.domain.errors import Conflict
from mustit_pipeline.domain.states import ExecutionStatus, SliceOutcome
from mustit_pipeline.domain.values import ExecutionId, SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.scheduling.due import DueSlice
from mustit_pipeline.settings import Settings

NOT_BEGUN = (dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.QUEUED)


class Mode(StrEnum):
    """What a run does with a seller."""

    CRAWL = "crawl"
    REFETCH = "refetch"
    REPLAY = "replay"


class ModeConfig(dg.Config):
    """What a launched run or backfill is asked to do."""

    mode: Mode = Field(
        Mode.CRAWL,
        description="CRAWL fetches what the recrawl policy asks for. REFETCH fetches every product anew. REPLAY sends "
        "no request: stored bodies are processed again. Said for one asset, REPLAY holds for the whole run",
    )


class CrawlConfig(ModeConfig):
    """What a launched crawl is asked to do; an open crawl that is joined keeps its own plan."""

    product_limit: int | None = Field(
        None, ge=1, description="Fetch only so many products; such a sweep deletes nothing"
    )
    triggered_by: str = Field("dagster", description="Who asked for it, as shown with the execution")


def replays(context: dg.AssetExecutionContext) -> bool:
    """Whether this run reads stored bodies anew and asks the marketplace for nothing.

    One asset that was asked for it decides for all: an unwanted request cannot be taken back.
    """
    config: Mapping[str, Any] = context.run.run_config
    asked = [(op or {}).get("config") or {} for op in (config.get("ops") or {}).values()]
    return any(one.get("mode") == Mode.REPLAY.name for one in asked)


def sweeps(context: dg.AssetExecutionContext) -> bool:
    """Whether the sweep belongs to this run; then it makes the plan, if need be in the next slice."""
    selection = context.run.asset_selection
    return not selection or dg.AssetKey("minishop_listings") in selection


def find_crawl(context: dg.AssetExecutionContext, config: CrawlConfig, database: Database, settings: Settings) -> Crawl:
    """The crawl that this run works on: the one it was started for, or the seller's open one, or a new one."""
    if replays(context):
        return Crawl(database, settings, last_crawl(context, database))
    stored = bound_execution(context, database)
    if stored is None:
        opened = open_or_join(
            database,
            SellerId(context.partition_key),
            triggered_by=config.triggered_by,
            now=utc_now(),
            full_refetch=config.mode is Mode.REFETCH,
            product_limit=config.product_limit,
            sweeps=sweeps(context),
        )
        stored = opened.stored
        # The run's later steps stay with this execution, even if it is cancelled meanwhile.
        context.instance.add_run_tags(
            context.run.run_id, {EXECUTION_TAG: str(stored.id), BOUND_TAG: context.run.run_id}
        )
        context.log.info(f"{'joined' if opened.joined else 'opened'} execution {stored.id}")
    _refuse_halted(context, database, stored)
    return Crawl(database, settings, stored)


def last_crawl(context: dg.AssetExecutionContext, database: Database) -> StoredExecution:
    """The seller's newest execution, ended or not: what a run without one of its own belongs to."""
    with database.reading() as connection:
        stored = executions.find_latest(connection, SellerId(context.partition_key))
    if stored is None:
        raise Conflict(
            "CONFLICT_SELLER_NEVER_CRAWLED",
            korean=f"크롤링한 적이 없는 셀러입니다: {context.partition_key}",
            english=f"The seller {context.partition_key} has never been crawled: there is nothing to work on",
        )
    return stored


def bound_execution(context: dg.AssetExecutionContext, database: Database) -> StoredExecution | None:
    """The execution that this run belongs to; a re-execution inherits its parent's tags but makes its own choice."""
    run = context.instance.get_run_by_id(context.run.run_id) or context.run
    inherited = run.parent_run_id is not None and run.tags.get(BOUND_TAG) != run.run_id
    if inherited or EXECUTION_TAG not in run.tags:
        return None
    return find(database, ExecutionId(run.tags[EXECUTION_TAG]))


def record_outcome(
    context: dg.AssetExecutionContext, database: Database, stored: StoredExecution, outcome: SliceOutcome
) -> None:
    """Store what this run's slice came to, where the run's own status does not say it."""
    ended = EndedSlice(context.run.run_id, stored.id.value, outcome, utc_now())
    with database.transaction() as connection:
        slices.record(connection, [ended])


def _refuse_halted(context: dg.AssetExecutionContext, database: Database, stored: StoredExecution) -> None:
    """Stop where an operator stopped the crawl; one that another run has completed leaves nothing to do."""
    execution = stored.execution
    if execution.status in (ExecutionStatus.PAUSED, ExecutionStatus.CANCELLED):
        record_outcome(context, database, stored, SliceOutcome.HALTED)
    if execution.status is ExecutionStatus.PAUSED:
        raise Conflict(
            "CONFLICT_EXECUTION_PAUSED",
            korean=f"일시정지된 실행입니다: {execution.id}",
            english=f"The crawl {execution.id} is PAUSED: resume it with `mustit execution resume {execution.id}`",
        )
    if execution.status in (ExecutionStatus.CANCELLED, ExecutionStatus.FAILED):
        raise Conflict(
            "CONFLICT_EXECUTION_ENDED",
            korean=f"이미 종료된 실행입니다: {execution.id} ({execution.status})",
            english=f"The crawl {execution.id} is {execution.status}: start a new one",
        )


def seconds_left(context: dg.AssetExecutionContext, settings: Settings) -> float:
    """What is left of this run's slice."""
    record = context.instance.get_run_record_by_id(context.run.run_id)
    started = record.start_time if record is not None and record.start_time is not None else time.time()
    return max(0.0, settings.crawl_slice_seconds - (time.time() - started))


def without_backfills(runs: Iterable[dg.DagsterRun]) -> list[dg.DagsterRun]:
    """Runs that take a slot of the sensors' own; those of backfills have theirs in the run queue."""
    return [run for run in runs if BACKFILL_TAG not in run.tags]


def without_waiting_backfills(runs: Iterable[dg.DagsterRun]) -> list[dg.DagsterRun]:
    """Runs that keep their seller busy; in a backfill of a thousand a seller's turn may be hours away."""
    return [run for run in runs if BACKFILL_TAG not in run.tags or run.status not in NOT_BEGUN]


def request_slices(instance: dg.DagsterInstance, due: Sequence[DueSlice]) -> list[dg.RunRequest]:
    """A run for each slice, after its seller has become a partition."""
    known = set(instance.get_dynamic_partitions(SELLERS))
    missing = [entry.seller_id for entry in due if entry.seller_id not in known]
    if missing:
        instance.add_dynamic_partitions(SELLERS, missing)
    return [
        dg.RunRequest(
            run_key=entry.key,
            partition_key=entry.seller_id,
            tags={
                EXECUTION_TAG: str(entry.execution_id),
                SLICE_TAG: str(entry.slice_no),
                PRIORITY_TAG: SLICE_PRIORITY,
            },
        )
        for entry in due
    ]
