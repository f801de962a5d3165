"""Crawls: the list, and one with its progress, results, and what can be done with it."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from mustit_pipeline.api.paging import cursor_id, make_cursor
from mustit_pipeline.api.paths import IdInPath
from mustit_pipeline.catalog.sql import history
from mustit_pipeline.console import live
from mustit_pipeline.console.forms import Sending, Sent, ask
from mustit_pipeline.console.languages import marked
from mustit_pipeline.console.pages.bulk import Question, act_on_all, chosen_ids
from mustit_pipeline.console.pages.crawl_progress import progress_of
from mustit_pipeline.console.pages.frame import (
    MOST_AT_ONCE,
    SIZE,
    by_cursor,
    chosen,
    framed,
    seller_or_none,
    unreadable_choice,
)
from mustit_pipeline.console.visits import Undo, Visit, Visiting
from mustit_pipeline.crawling import steering
from mustit_pipeline.crawling.sql import executions
from mustit_pipeline.domain.filters import IdPrefix
from mustit_pipeline.domain.states import EXECUTION, ExecutionStatus, TaskType
from mustit_pipeline.domain.values import ExecutionId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.monitoring.sql.activity import Moving

SHOWN_CHANGES = 10
ACTIONS = {
    "pause": marked("Pause the crawls"),
    "resume": marked("Resume the crawls"),
    "cancel": marked("Cancel the crawls"),
}

router = APIRouter(prefix="/executions")


@router.get("")
def list_executions(
    visit: Visiting,
    seller: Annotated[str, Query(max_length=200)] = "",
    status: str = "",
    cursor: Annotated[str | None, Query(max_length=200)] = None,
) -> Response:
    """Crawls, newest first."""
    wanted = chosen(ExecutionStatus, status)
    before = None if cursor is None else cursor_id(cursor)
    with visit.database.reading() as connection:
        found = executions.newest(connection, seller_or_none(seller), SIZE, status=wanted, before=before)
        following = make_cursor(str(found.rows[-1].id)) if found.more else None
        return framed(
            visit,
            connection,
            "executions.html",
            events=live.address(Moving.CRAWLS),
            found=found.rows,
            seller=seller,
            status=wanted,
            statuses=list(ExecutionStatus),
            actions=[(action, visit.say(text)) for action, text in ACTIONS.items()],
            pager=by_cursor(visit, "/executions", cursor, following, seller=seller, status=wanted),
        )


@router.post("/actions")
def act(visit: Visiting, sent: Sending) -> Response:
    """Pause, resume or cancel several crawls: those that were chosen, or all that match and that it is possible for."""
    action = sent.text("action")
    if action not in ACTIONS:
        raise unreadable_choice()
    has_more = False
    if sent.text("which") == "all":
        targets, has_more = _matching(visit, sent, action)
    else:
        with visit.database.reading() as connection:
            targets = [stored.id for stored in executions.find_all(connection, chosen_ids(sent, "execution"))]
    text = visit.say_number("This concerns %(number)s crawl.", "This concerns %(number)s crawls.", len(targets))
    question = Question(visit.say(ACTIONS[action]), text, danger=action == "cancel", has_more=has_more)

    def change(found: ExecutionId) -> None:
        database = visit.audited(f"execution.{action}", steering.target(found))
        match action:
            case "pause":
                steering.pause(database, found)
            case "resume":
                steering.resume(database, found)
            case _:
                steering.cancel(database, found, utc_now())

    return act_on_all(visit, sent, "/executions", targets, question=question, change=change)


def _matching(visit: Visit, sent: Sent, action: str) -> tuple[list[ExecutionId], bool]:
    """As many as are changed at once, and whether there are more."""
    wanted, seller = chosen(ExecutionStatus, sent.text("status")), seller_or_none(sent.text("seller"))
    states = [state for state in EXECUTION.sources(action) if wanted in (None, state)]
    with visit.database.reading() as connection:
        found = [executions.newest(connection, seller, MOST_AT_ONCE, status=state) for state in sorted(states)]
    targets = [stored.id for one in found for stored in one.rows]
    return targets[:MOST_AT_ONCE], len(targets) > MOST_AT_ONCE or any(one.more for one in found)


@router.get("/{id}")
def execution_page(wanted: IdInPath, visit: Visiting) -> Response:
    """One crawl."""
    with visit.database.reading() as connection:
        stored = executions.find(connection, wanted)
        return framed(
            visit,
            connection,
            "execution.html",
            events=live.address(seller=stored.seller_id.value) if stored.is_open else None,
            progress=(progress := progress_of(connection, visit, stored)),
            standings={one.task_type: one for one in progress.ahead.standings},
            task_types=list(TaskType),
            stored=stored,
            execution=stored.execution,
            changes=executions.changes_by_type(connection, stored.id.value),
            failures=executions.failures_by_reason(connection, stored),
            largest=history.largest_changes(connection, stored.id.value, SHOWN_CHANGES),
        )


@router.post("/{id}/pause")
def pause(wanted: IdInPath, visit: Visiting, sent: Sending) -> Response:
    """Pause; resuming undoes it."""
    found = _find(visit, wanted)
    steering.pause(visit.audited("execution.pause", steering.target(found)), found)
    said = visit.say("The crawl is paused; requests in flight end normally. Written to the audit log.")
    return visit.done(sent.back or f"/executions/{found}", said, undo=Undo(f"/executions/{found}/resume"))


@router.post("/{id}/resume")
def resume(wanted: IdInPath, visit: Visiting, sent: Sending) -> Response:
    """Go on with what is stored."""
    found = _find(visit, wanted)
    steering.resume(visit.audited("execution.resume", steering.target(found)), found)
    said = visit.say("The crawl goes on. Written to the audit log.")
    return visit.done(sent.back or f"/executions/{found}", said, undo=Undo(f"/executions/{found}/pause"))


@router.post("/{id}/cancel")
def cancel(wanted: IdInPath, visit: Visiting, sent: Sending) -> Response:
    """End a crawl for good, once that is confirmed."""
    found = _find(visit, wanted)
    if not sent.is_confirmed:
        return ask(
            visit,
            sent,
            title=visit.say("Cancel this crawl?"),
            text=visit.say("Its open tasks end. What is fetched stays stored; it cannot be resumed."),
            action=visit.say("Cancel the crawl"),
            danger=True,
        )
    steering.cancel(visit.audited("execution.cancel", steering.target(found)), found, utc_now())
    said = visit.say("The crawl is cancelled. Written to the audit log.")
    return visit.done(sent.back or f"/executions/{found}", said)


def _find(visit: Visit, wanted: IdPrefix) -> ExecutionId:
    with visit.database.reading() as connection:
        return executions.find(connection, wanted).id
