"""`mustit crawl`: one seller's crawl, here and now, through the same Dagster job that the daemon runs."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mustit_pipeline.catalog.sql import change_holds
from mustit_pipeline.cli.list_options import LARGEST_NUMBER
from mustit_pipeline.cli.output import Json, err, lasting, message_of, out, print_error, print_json
from mustit_pipeline.cli.progress import Step, watched
from mustit_pipeline.cli.runtime import (
    Runtime,
    dagster_instance,
    ensure_partition,
    failure_reason,
    run_quietly,
    runtime,
)
from mustit_pipeline.cli.stopping import Stopped, raise_if_stopped
from mustit_pipeline.crawling import forecast
from mustit_pipeline.crawling.estimate import estimate
from mustit_pipeline.crawling.sql import executions
from mustit_pipeline.crawling.sql.choosing import Reasons
from mustit_pipeline.crawling.sql.executions import StoredExecution
from mustit_pipeline.crawling.steering import find, open_or_join, target_of_trigger
from mustit_pipeline.domain.errors import Conflict
from mustit_pipeline.domain.recrawl.choosing import Reason
from mustit_pipeline.domain.states import ExecutionStatus
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.settings import load_settings

if TYPE_CHECKING:
    import dagster as dg

HELD = "Too many products look wrong at once, so nothing was published: see `mustit holds list`"

STOPPED = "Stopped; what is stored stays, and the next crawl of this seller goes on from there"


@dataclass(frozen=True, slots=True)
class CrawlSummary:
    """How a crawl ended, or why it did not."""

    stored: StoredExecution
    changes: dict[str, int] = field(default_factory=dict[str, int])
    problem: str | None = None
    held: bool = False
    stopped: Stopped | None = None

    @property
    def is_good(self) -> bool:
        """Whether it is COMPLETED, without failed tasks and without held changes."""
        execution = self.stored.execution
        return execution.status is ExecutionStatus.COMPLETED and not execution.failed_tasks and not self.held

    def document(self) -> dict[str, Any]:
        """What `crawl --json` prints."""
        execution = self.stored.execution
        document = {
            "executionId": str(execution.id),
            "sellerId": execution.seller_id.value,
            "status": execution.status.value,
            "totalTasks": execution.total_tasks,
            "completedTasks": execution.completed_tasks,
            "failedTasks": execution.failed_tasks,
            "requests": self.stored.requests,
            "changes": self.changes,
        }
        return document if self.problem is None else {**document, "message": self.problem}


def crawl(
    seller_id: Annotated[str, typer.Argument(metavar="ID", help="A registered seller.")],
    full: Annotated[
        bool, typer.Option("--full", help="Refetch every product, whatever the recrawl policy says.")
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=1, max=LARGEST_NUMBER, help="Fetch only so many products, all of them."),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Only show what it would do: how many requests and why, and how long at best."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Run one seller's crawl to its end, here and now.

    It ignores the interval and joins the seller's open crawl, if there is one. Exit 0 only if the crawl completed
    with no failed task.

    Example: `mustit crawl dmont --limit 20`
    """
    key = SellerId(seller_id)
    if dry_run:
        _tell_estimate(key, full=full, limit=limit, as_json=as_json)
        return
    # Checked before anything is opened.
    _ = load_settings().marketplace_url
    with runtime() as ground, dagster_instance(ground.settings, runs_here=True) as instance:
        try:
            summary = run_crawl(ground, instance, key, full=full, limit=limit)
        except Conflict as error:
            if as_json:
                print_json(_nothing_opened(key, error))
            print_error(message_of(error))
            raise typer.Exit(1) from None
    if as_json:
        print_json(summary.document())
    else:
        tell(summary)
    if summary.stopped is not None:
        err.print(STOPPED, highlight=False, soft_wrap=True)
        raise summary.stopped
    if summary.problem is not None:
        print_error(summary.problem)
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
    """Open or join the seller's execution and run its slices until it has ended or is stopped."""
    opened = open_or_join(
        ground.audited("crawl.trigger", target_of_trigger(seller_id)),
        seller_id,
        triggered_by="cli",
        now=utc_now(),
        full_refetch=full,
        product_limit=limit,
    )
    execution_id = opened.stored.id
    if opened.joined:
        own = ", which keeps its own --limit and --full" if full or limit is not None else ""
        if opened.stored.product_limit is not None:
            own += f"; it fetches at most {opened.stored.product_limit:,} products"
        err.print(f"Joined the open execution {execution_id}{own}.", highlight=False, soft_wrap=True)
    ensure_partition(instance, seller_id.value)

    def look() -> Step:
        return _step(ground, find(ground.database, execution_id))

    stored, problem, stopped = opened.stored, None, None
    with watched(f"crawling {seller_id}", look, quiet=quiet):
        try:
            while _is_workable(stored) and problem is None:
                problem = _run_slice(instance, stored)
                stored = find(ground.database, execution_id)
        except Stopped as stop:
            stored, problem, stopped = find(ground.database, execution_id), STOPPED, stop
    with ground.database.reading() as connection:
        changes = executions.changes_by_type(connection, execution_id.value)
        held = bool(change_holds.open_of(connection, [seller_id]))
    return CrawlSummary(stored, changes, _halted(stored) or problem or (HELD if held else None), held, stopped)


def _step(ground: Runtime, stored: StoredExecution) -> Step:
    """The progress of this process's crawl."""
    now = utc_now()
    with ground.database.reading() as connection:
        ahead = forecast.look(connection, ground.settings, stored, now)
    execution = stored.execution
    done = execution.completed_tasks + execution.failed_tasks
    if ahead.waits_for is not None and execution.is_open:
        note = f"waiting: {ahead.waits_for}"
    elif execution.status is ExecutionStatus.PENDING:
        note = "asking how many products there are"
    elif not stored.is_swept:
        note = "fetching the listing"
    else:
        note = "fetching products" if done < ahead.expected_tasks else "writing change sets"
    return Step(done, ahead.expected_tasks or None, "tasks", stored.requests, ahead.done_at, note)


def _run_slice(instance: "dg.DagsterInstance", stored: StoredExecution) -> str | None:
    """One run of the job; says why it could not work its slice through, which another run would not change."""
    from mustit_pipeline.defs.run_tags import EXECUTION_TAG

    result = run_quietly(
        instance,
        "crawl_seller",
        partition_key=stored.seller_id.value,
        tags={EXECUTION_TAG: str(stored.id)},
    )
    raise_if_stopped(result)
    # A failed task fails the run too, but only after its change sets are written: such a crawl continues.
    if result.success or result.asset_materializations_for_node("product_change_sets"):
        return None
    return failure_reason(result)


def _is_workable(stored: StoredExecution) -> bool:
    return stored.is_open and stored.status is not ExecutionStatus.PAUSED


def _halted(stored: StoredExecution) -> str | None:
    """Why the execution does not continue, if it has ended or is paused."""
    execution = stored.execution
    if execution.status is ExecutionStatus.PAUSED:
        return f"The crawl is PAUSED: resume it with `mustit execution resume {execution.id}`"
    if execution.status is ExecutionStatus.CANCELLED:
        return "The crawl was CANCELLED"
    return execution.error_text


def _nothing_opened(seller_id: SellerId, error: Conflict) -> dict[str, Any]:
    """The crawl document of a seller that is not crawled."""
    return {
        "executionId": None,
        "sellerId": seller_id.value,
        "status": "INACTIVE",
        "totalTasks": 0,
        "completedTasks": 0,
        "failedTasks": 0,
        "requests": 0,
        "changes": {},
        "errorCode": error.code,
        "message": message_of(error),
    }


# In the document, and in words.
REASONS = {
    "new": "new",
    "changedInListing": "changed in the listing",
    "tooOld": "too old",
    "valuable": "valuable",
    "exploration": "by exploration",
}


def _tell_estimate(seller_id: SellerId, *, full: bool, limit: int | None, as_json: bool) -> None:
    with runtime() as ground:
        cost = estimate(ground.database, ground.settings, seller_id, full=full, limit=limit)
    if as_json:
        seconds = None if cost.seconds is None else round(cost.seconds, 1)
        print_json(
            {
                "sellerId": seller_id.value,
                "joins": None if cost.joins is None else str(cost.joins),
                "products": cost.products,
                "requests": cost.requests,
                "availableAgents": cost.agents,
                "seconds": seconds,
                "reasons": None if cost.sources is None else _reasons(cost.sources, explores=cost.explores),
            }
        )
        return
    time = "but no agent is left" if cost.seconds is None else f"{lasting(cost.seconds)} at best"
    products = "" if cost.products is None else f"{cost.products:,} products, "
    what = f"{products}{cost.requests:,} requests"
    if cost.joins is not None:
        what = f"joins the open execution {cost.joins}, which keeps its own --limit and --full: {what} left"
    out.print(f"{seller_id}: {what}, {time} with {cost.agents} agents", markup=False, highlight=False, soft_wrap=True)
    if cost.sources is not None:
        counted = _reasons(cost.sources, explores=cost.explores)
        chosen = [f"{counted[name]:,} {words}" for name, words in REASONS.items()]
        out.print(
            f"of {cost.sources.sources:,} details and option sets: {', '.join(chosen)}, {cost.sources.left:,} "
            "left for later; and what the listing then shows to have changed",
            highlight=False,
            soft_wrap=True,
        )


def _reasons(sources: Reasons, *, explores: bool) -> dict[str, int]:
    """Details and option sets by why they would be fetched, and those that would not."""
    chosen = sources.chosen
    aged = chosen.get(Reason.LATE, 0) + chosen.get(Reason.AGE, 0)
    return {
        "new": chosen.get(Reason.NEW, 0),
        "changedInListing": chosen.get(Reason.SIGNALLED, 0),
        "tooOld": 0 if explores else aged,
        "valuable": chosen.get(Reason.VALUE, 0),
        "exploration": aged if explores else 0,
        "notWorthIt": sources.left,
    }


def _left_out(stored: StoredExecution) -> str:
    """The listed items that are not crawled, and why."""
    foreign = f", {stored.foreign_items:,} listed of another seller" if stored.foreign_items else ""
    skipped = f", {stored.skipped_items:,} listed unreadable" if stored.skipped_items else ""
    return foreign + skipped


def tell(summary: CrawlSummary) -> None:
    """How a crawl ended, in two lines."""
    stored, execution = summary.stored, summary.stored.execution
    changes = ", ".join(f"{kind} {number:,}" for kind, number in summary.changes.items()) or "none"
    out.print(
        f"{execution.seller_id}: {execution.status}, {execution.completed_tasks:,} of {execution.total_tasks:,} tasks "
        f"done, {execution.failed_tasks:,} failed, {stored.requests:,} requests, sweep {stored.sweep_status}"
        f"{_left_out(stored)}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    out.print(f"changes: {changes}", markup=False, highlight=False)
    if execution.failed_tasks:
        err.print(
            f"[yellow]look at the failures with[/yellow] mustit execution show {execution.id}",
            highlight=False,
            soft_wrap=True,
        )
