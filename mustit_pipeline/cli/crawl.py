"""`mustit crawl`: one seller's crawl, here and now, through the same Dagster job that the daemon runs."""

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mustit_pipeline.cli.output import Json, err, out, print_json
from mustit_pipeline.cli.progress import watched
from mustit_pipeline.cli.runtime import Runtime, dagster_instance, ensure_partition, runtime
from mustit_pipeline.crawling.executions import find, open_or_join
from mustit_pipeline.crawling.worker import utc_now
from mustit_pipeline.domain.errors import Conflict
from mustit_pipeline.domain.states import ExecutionStatus
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.store import executions
from mustit_pipeline.store.executions import StoredExecution

if TYPE_CHECKING:
    import dagster as dg


@dataclass(frozen=True, slots=True)
class CrawlSummary:
    """How a crawl ended."""

    stored: StoredExecution
    changes: dict[str, int]

    @property
    def is_good(self) -> bool:
        """Whether it is COMPLETED and no task failed."""
        execution = self.stored.execution
        return execution.status is ExecutionStatus.COMPLETED and not execution.failed_tasks

    def document(self) -> dict[str, Any]:
        """What `crawl --json` prints."""
        execution = self.stored.execution
        return {
            "executionId": str(execution.id),
            "sellerId": execution.seller_id.value,
            "status": execution.status.value,
            "totalTasks": execution.total_tasks,
            "completedTasks": execution.completed_tasks,
            "failedTasks": execution.failed_tasks,
            "requests": self.stored.requests,
            "changes": self.changes,
        }


def crawl(
    seller_id: Annotated[str, typer.Argument(metavar="ID", help="A registered seller.")],
    full: Annotated[bool, typer.Option("--full", help="Refetch every product.")] = False,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Fetch at most so many products.")] = None,
    as_json: Json = False,
) -> None:
    """Run one seller's crawl to its end, here and now.

    Example: `mustit crawl dmont --limit 20`
    """
    with runtime() as ground, dagster_instance(ground.settings) as instance:
        summary = run_crawl(ground, instance, SellerId(seller_id), full=full, limit=limit, quiet=as_json)
    if as_json:
        print_json(summary.document())
    else:
        _tell(summary)
    raise typer.Exit(0 if summary.is_good else 1)


def run_crawl(
    ground: Runtime,
    instance: "dg.DagsterInstance",
    seller_id: SellerId,
    *,
    full: bool = False,
    limit: int | None = None,
    quiet: bool = False,
) -> CrawlSummary:
    """Open or join the seller's execution and run slice after slice of it until it has ended."""
    from mustit_pipeline.definitions import defs

    opened = open_or_join(
        ground.database, seller_id, triggered_by="cli", now=utc_now(), full_refetch=full, product_limit=limit
    )
    execution_id = opened.stored.execution.id
    if opened.joined and not quiet:
        err.print(f"Joined the open execution {execution_id}.", highlight=False)
    _refuse_paused(opened.stored)
    ensure_partition(instance, seller_id.value)
    job = defs.resolve_job_def("crawl_seller")

    def look() -> tuple[int, int | None]:
        execution = find(ground.database, execution_id).execution
        return execution.completed_tasks + execution.failed_tasks, execution.total_tasks or None

    logging.getLogger("dagster").setLevel(logging.CRITICAL)
    stored = opened.stored
    with watched(f"crawling {seller_id}", look, quiet=quiet):
        while stored.execution.is_open:
            result = job.execute_in_process(
                instance=instance,
                partition_key=seller_id.value,
                raise_on_error=False,
                run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
            )
            before, stored = stored, find(ground.database, execution_id)
            if not result.success and stored.execution.is_open and stored.updated_at == before.updated_at:
                break
            _refuse_paused(stored)
    with ground.database.reading() as connection:
        changes = executions.changes_by_type(connection, execution_id.value)
    return CrawlSummary(stored, changes)


def _refuse_paused(stored: StoredExecution) -> None:
    if stored.execution.status is ExecutionStatus.PAUSED:
        raise Conflict(
            "CONFLICT_EXECUTION_PAUSED",
            korean=f"일시정지된 실행입니다: {stored.execution.id}",
            english=f"The crawl {stored.execution.id} is PAUSED: resume it with "
            f"`mustit execution resume {stored.execution.id}`",
        )


def _tell(summary: CrawlSummary) -> None:
    execution = summary.stored.execution
    changes = ", ".join(f"{kind} {number}" for kind, number in summary.changes.items()) or "none"
    out.print(
        f"{execution.seller_id}: {execution.status}, {execution.completed_tasks} of {execution.total_tasks} tasks "
        f"done, {execution.failed_tasks} failed, {summary.stored.requests} requests, sweep {summary.stored.sweep_status}",
        markup=False,
        highlight=False,
    )
    out.print(f"changes: {changes}", markup=False, highlight=False)
    if execution.error_text:
        err.print(f"[red]error:[/red] {execution.error_text}", highlight=False)
    elif execution.failed_tasks:
        err.print(f"[yellow]look at the failures with[/yellow] mustit execution show {execution.id}", highlight=False)
