"""`mustit execution`: the state of crawls; pause, resume and cancel."""

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from mustit_pipeline.api.answers.executions import ExecutionAnswer, ExecutionDetail
from mustit_pipeline.cli.list_options import (
    WIDE_SCREEN,
    Limit,
    Seller,
    cut,
    known_seller,
    make_table,
    minute,
    short,
    show_page,
    status,
)
from mustit_pipeline.cli.output import Json, local, out, print_fields, print_json, print_outcome, print_table, until
from mustit_pipeline.cli.runtime import runtime
from mustit_pipeline.crawling import forecast, steering
from mustit_pipeline.crawling.forecast import Forecast
from mustit_pipeline.crawling.sql import executions
from mustit_pipeline.crawling.sql.executions import StoredExecution
from mustit_pipeline.domain.filters import IdPrefix
from mustit_pipeline.domain.states import ExecutionStatus, SweepStatus, TaskType
from mustit_pipeline.domain.values import ExecutionId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database

app = typer.Typer(help="Crawls: their state, pause, resume and cancel.", no_args_is_help=True)

Id = Annotated[str, typer.Argument(metavar="ID", help="The execution's id, or its first digits.")]


@app.command("list", epilog="Example: `mustit execution list --seller dmont`")
def show_all(seller: Seller = None, limit: Limit = 20, as_json: Json = False) -> None:
    """List executions, newest first, with the result of their sweeps; `show ID` has the reasons."""
    with runtime() as ground, ground.database.reading() as connection:
        found = executions.newest(connection, known_seller(connection, seller), limit)
    empty = f"There is no execution{'' if seller is None else f' of {seller}'} yet: `mustit crawl` opens one."
    show_page(found, as_json=as_json, document=_document, table=_table, empty=empty)


def _table(found: list[StoredExecution]) -> Table:
    # On a narrow screen, columns that `show ID` has too are left out.
    wide = ["tasks", "requests", "ended"] if out.width >= WIDE_SCREEN else []
    columns = ["id", "kind", "status", "sweep", "failed", "done", "started", *wide]
    rows = [(*map(_cells(stored).__getitem__, columns), cut(stored.seller_id.value)) for stored in found]
    return make_table(columns, ["seller"], rows)


def kind_of(stored: StoredExecution) -> str:
    """What a crawl fetches, in a word."""
    return "full" if stored.full_refetch else stored.kind.value.lower()


def _cells(stored: StoredExecution) -> dict[str, object]:
    execution = stored.execution
    return {
        "id": short(execution.id),
        "kind": kind_of(stored),
        "status": status(execution.status),
        "sweep": status("" if stored.listed_count is None else stored.sweep_status),
        "failed": f"{execution.failed_tasks:,}",
        "done": f"{execution.progress_rate:.0f} %",
        "started": minute(execution.started_at),
        "tasks": f"{execution.total_tasks:,}",
        "requests": f"{stored.requests:,}",
        "ended": minute(execution.ended_at),
    }


@app.command("show", epilog="Example: `mustit execution show 0b6f13c2`")
def show(execution_id: Id, as_json: Json = False) -> None:
    """Show what one execution is doing, when it should end, and why its tasks failed."""
    with runtime() as ground, ground.database.reading() as connection:
        stored = executions.find(connection, IdPrefix(execution_id))
        changes = executions.changes_by_type(connection, stored.id.value)
        failures = executions.failures_by_reason(connection, stored)
        now = utc_now()
        ahead = forecast.look(connection, ground.settings, stored, now)
    if as_json:
        whole = ExecutionDetail.whole(stored, ahead, changes, failures)
        # Tasks by type, in the names that they have always had here.
        print_json(_document(stored, whole) | {"tasks": [asdict(standing) for standing in ahead.standings]})
        return
    _print_execution(stored, ahead, changes, now)
    if failures:
        print_table("why tasks failed", ["tasks", "code", "example"], [tuple(failure.values()) for failure in failures])


def _print_execution(stored: StoredExecution, ahead: Forecast, changes: dict[str, int], now: datetime) -> None:
    execution = stored.execution
    out.print(
        Text.assemble((execution.seller_id.value, "bold"), f"  {execution.status.value}  {_progress(stored, ahead)}")
    )
    print_fields(
        {
            "doing": ahead.doing if execution.is_open else None,
            "done about": None if ahead.done_at is None else until(ahead.done_at, now),
            "pace": f"{ahead.in_progress:,} tasks in progress, {ahead.per_second:.1f} ended a second"
            if execution.is_open and execution.started_at
            else None,
            "why it failed": execution.error_text,
            "next": "`mustit execution resume` goes on from what is stored"
            if execution.status is ExecutionStatus.FAILED
            else None,
            "changes": ", ".join(f"{name} {number:,}" for name, number in changes.items()) or "none",
            "requests": f"{stored.requests:,}, {stored.throttled:,} of them throttled",
            "sweep": _sweep(stored, ahead),
            "started": local(execution.started_at) or None,
            "ended": local(execution.ended_at) or None,
            "kind": kind_of(stored),
            "triggered by": stored.triggered_by,
            "execution": str(execution.id),
        },
        leave_out_empty=True,
    )
    if ahead.standings:
        print_table(
            "tasks",
            ["type", "waiting", "in progress", "completed", "failed"],
            [
                (one.task_type.value, *(f"{n:,}" for n in (one.waiting, one.in_progress, one.completed, one.failed)))
                for one in ahead.standings
            ],
        )


def _progress(stored: StoredExecution, ahead: Forecast) -> str:
    """The ended tasks of all planned ones, or of the expected ones while the listing is read."""
    execution = stored.execution
    ended = execution.completed_tasks + execution.failed_tasks
    if not ahead.expected_tasks:
        return "no task is planned"
    about = "about " if ahead.is_estimate else ""
    share = 100 * ended / ahead.expected_tasks
    return f"{share:.0f} %  ({ended:,} of {about}{ahead.expected_tasks:,} tasks, {execution.failed_tasks:,} failed)"


def _sweep(stored: StoredExecution, ahead: Forecast) -> str:
    """How much of the listing was seen, and why not all of it."""
    if stored.listed_count is None:
        return "none: only products that are known are fetched" if stored.is_swept else "not begun"
    foreign = f", {stored.foreign_items:,} of them another seller's" if stored.foreign_items else ""
    listed = f"{stored.listed_count:,} products listed{foreign}"
    if stored.sweep_status is SweepStatus.PENDING:
        return (
            f"under way, {listed}; what they will take is an estimate"
            if stored.is_open
            else f"broken off, {listed}: nothing is deleted"
        )
    if stored.sweep_status is SweepStatus.COMPLETE:
        return f"COMPLETE, {listed}"
    failed = sum(standing.failed for standing in ahead.standings if standing.task_type is TaskType.MINISHOP)
    limit, skipped = stored.product_limit, stored.skipped_items
    reasons = [
        *([] if limit is None else [f"limited to {limit:,}"]),
        *([f"{failed:,} of its pages failed"] if failed else []),
        *([f"{skipped:,} of its items could not be read"] if skipped else []),
    ]
    why = ", ".join(reasons) or "not all of them were on its pages"
    return f"INCOMPLETE, {listed}, {why}: nothing is deleted"


@app.command("pause", epilog="Example: `mustit execution pause 0b6f13c2`")
def pause(execution_id: Id, as_json: Json = False) -> None:
    """Lease no further task of a running execution; requests in flight end normally."""
    with runtime() as ground:
        found = _find(ground.database, execution_id)
        _say(steering.pause(ground.audited("execution.pause", steering.target(found)), found), as_json)


@app.command("resume", epilog="Example: `mustit execution resume 0b6f13c2`")
def resume(execution_id: Id, as_json: Json = False) -> None:
    """Continue a paused or failed execution with its stored tasks."""
    with runtime() as ground:
        found = _find(ground.database, execution_id)
        _say(steering.resume(ground.audited("execution.resume", steering.target(found)), found), as_json)


@app.command("cancel", epilog="Example: `mustit execution cancel 0b6f13c2`")
def cancel(execution_id: Id, as_json: Json = False) -> None:
    """End an execution and its open tasks for good."""
    with runtime() as ground:
        found = _find(ground.database, execution_id)
        _say(steering.cancel(ground.audited("execution.cancel", steering.target(found)), found, utc_now()), as_json)


def _find(database: Database, given: str) -> ExecutionId:
    with database.reading() as connection:
        return executions.find(connection, IdPrefix(given)).id


def _say(stored: StoredExecution, as_json: bool) -> None:
    print_outcome(_document(stored), f"{stored.id} is {stored.status}.", as_json=as_json)


def _document(stored: StoredExecution, answer: ExecutionAnswer | None = None) -> dict[str, Any]:
    return (answer or ExecutionAnswer.of(stored)).document() | {"kind": stored.kind.value}
