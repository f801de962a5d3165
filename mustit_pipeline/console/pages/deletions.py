"""Deletions that are held back: the evidence, and the decision."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from mustit_pipeline.api.paths import IdInPath
from mustit_pipeline.catalog import deletion
from mustit_pipeline.catalog.sql import deletions
from mustit_pipeline.console.forms import Sending, ask
from mustit_pipeline.console.languages import marked
from mustit_pipeline.console.pages.bulk import Question, act_on_all, chosen_ids
from mustit_pipeline.console.pages.frame import MOST_AT_ONCE, framed, seller_or_none, unreadable_choice
from mustit_pipeline.console.pages.hold_list import HoldList
from mustit_pipeline.console.visits import Visit, Visiting
from mustit_pipeline.domain.deletion import DeletionHold
from mustit_pipeline.domain.filters import IdPrefix
from mustit_pipeline.domain.states import HoldStatus
from mustit_pipeline.foundation.clock import utc_now

SHOWN_PRODUCTS = 200
ACTIONS = {"approve": marked("Approve the deletions"), "reject": marked("Reject the deletions")}

router = APIRouter(prefix="/deletions")
HOLDS = HoldList(
    "/deletions", "deletions.html", HoldStatus.OPEN, deletions.newest_holds, deletions.count_holds, ACTIONS
)


@router.get("")
def list_holds(
    visit: Visiting,
    status: str = "",
    seller: Annotated[str, Query(max_length=200)] = "",
    page: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
) -> Response:
    """Holds, open ones first."""
    return HOLDS.page(visit, status, seller, page)


@router.get("/{id}")
def hold_page(wanted: IdInPath, visit: Visiting) -> Response:
    """One hold with its products."""
    with visit.database.reading() as connection:
        hold = deletions.find_hold(connection, wanted)
        items = hold.item_nos[:SHOWN_PRODUCTS]
        return framed(
            visit,
            connection,
            "deletion.html",
            hold=hold,
            items=items,
            absent=set(deletions.still_absent(connection, hold)) if hold.status is HoldStatus.OPEN else set[int](),
            names=deletions.names(connection, hold.seller_id, items),
        )


@router.post("/actions")
def act(visit: Visiting, sent: Sending) -> Response:
    """Decide on several holds at once: those that were chosen, or all open ones that match."""
    action = sent.text("action")
    if action not in ACTIONS:
        raise unreadable_choice()
    with visit.database.reading() as connection:
        if sent.text("which") == "all":
            of = seller_or_none(sent.text("seller"))
            found = deletions.newest_holds(connection, status=HoldStatus.OPEN, seller_id=of, limit=MOST_AT_ONCE)
            holds, has_more = found.rows, found.more
        else:
            holds, has_more = deletions.find_holds(connection, chosen_ids(sent, "hold")), False
        missing = deletions.count_still_absent(connection, holds) if action == "approve" else 0
    concerned = visit.say_number("This concerns %(number)s hold.", "This concerns %(number)s holds.", len(holds))
    told = visit.say_number(
        "%(number)s product is deleted, and the product server is told.",
        "%(number)s products are deleted, and the product server is told.",
        missing,
    )
    approves = action == "approve"
    text = f"{concerned} {told}" if approves else concerned
    question = Question(visit.say(ACTIONS[action]), text, danger=approves, has_more=has_more)

    def decide(hold: DeletionHold) -> None:
        change = deletion.approve if approves else deletion.reject
        change(visit.audited(f"deletion.{action}", deletion.target(hold.id)), IdPrefix(str(hold.id)), utc_now())

    return act_on_all(visit, sent, "/deletions", holds, question=question, change=decide)


@router.post("/{id}/approve")
def approve(wanted: IdInPath, visit: Visiting, sent: Sending) -> Response:
    """Delete what is still absent, once that is confirmed."""
    hold = _find(visit, wanted)
    if not sent.is_confirmed:
        with visit.database.reading() as connection:
            number = len(deletions.still_absent(connection, hold))
        text = visit.say_number(
            "%(number)s product of %(seller)s is deleted, and the product server is told.",
            "%(number)s products of %(seller)s are deleted, and the product server is told.",
            number,
            seller=hold.seller_id,
        )
        return ask(
            visit,
            sent,
            title=visit.say("Approve these deletions?"),
            text=text,
            action=visit.say("Delete them"),
            danger=True,
        )
    decision = deletion.approve(
        visit.audited("deletion.approve", deletion.target(hold.id)), IdPrefix(str(hold.id)), utc_now()
    )
    said = visit.say_number(
        "%(number)s product is deleted. Written to the audit log.",
        "%(number)s products are deleted. Written to the audit log.",
        len(decision.deleted),
    )
    return visit.done("/deletions", said)


@router.post("/{id}/reject")
def reject(wanted: IdInPath, visit: Visiting, sent: Sending) -> Response:
    """Delete nothing, once that is confirmed; the next sweep that misses as many opens the next hold."""
    hold = _find(visit, wanted)
    if not sent.is_confirmed:
        return ask(
            visit,
            sent,
            title=visit.say("Reject these deletions?"),
            text=visit.say("No product of %(seller)s is deleted until another crawl misses it.", seller=hold.seller_id),
            action=visit.say("Reject"),
        )
    deletion.reject(visit.audited("deletion.reject", deletion.target(hold.id)), IdPrefix(str(hold.id)), utc_now())
    said = visit.say("Rejected: no product is deleted. Written to the audit log.")
    return visit.done("/deletions", said)


def _find(visit: Visit, wanted: IdPrefix) -> DeletionHold:
    with visit.database.reading() as connection:
        return deletions.find_hold(connection, wanted)
