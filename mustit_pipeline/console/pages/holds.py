"""Changes that are held back because too many of a seller's products look wrong at once."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Response

from mustit_pipeline.api.paths import SellerInPath
from mustit_pipeline.catalog import releasing
from mustit_pipeline.catalog.processing import ProcessingReport
from mustit_pipeline.catalog.sql import change_holds
from mustit_pipeline.console.forms import Sending, ask
from mustit_pipeline.console.languages import marked
from mustit_pipeline.console.pages.bulk import Question, act_on_all
from mustit_pipeline.console.pages.frame import MOST_AT_ONCE, seller_or_none
from mustit_pipeline.console.pages.hold_list import HoldList
from mustit_pipeline.console.visits import Visit, Visiting
from mustit_pipeline.domain.states import ChangeHoldStatus
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.clock import utc_now

RELEASE = marked("Release the changes")
HOLDS = HoldList(
    "/holds", "holds.html", ChangeHoldStatus.OPEN, change_holds.newest, change_holds.count, {"release": RELEASE}
)

router = APIRouter(prefix="/holds")


@router.get("")
def list_holds(
    visit: Visiting,
    status: str = "",
    seller: Annotated[str, Query(max_length=200)] = "",
    page: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
) -> Response:
    """Holds, open ones first, with examples."""
    return HOLDS.page(visit, status, seller, page)


@router.post("/actions")
def act(visit: Visiting, sent: Sending) -> Response:
    """Publish the held changes of several sellers: those that were chosen, or all open holds that match."""
    with visit.database.reading() as connection:
        if sent.text("which") == "all":
            of = seller_or_none(sent.text("seller"))
            listed = change_holds.newest(connection, status=ChangeHoldStatus.OPEN, seller_id=of, limit=MOST_AT_ONCE)
            found, has_more = listed.rows, listed.more
        else:
            ids = [SellerId(one) for one in dict.fromkeys(sent.all("hold"))][:MOST_AT_ONCE]
            found, has_more = change_holds.open_of(connection, ids), False
    judged = [hold.suspicion for hold in found]
    wrong = sum(one.suspicious for one in judged)
    text = visit.say_number("This concerns %(number)s seller.", "This concerns %(number)s sellers.", len(found))
    text += " " + visit.say_number(
        "%(number)s product that looks wrong is published as it is.",
        "%(number)s products that look wrong are published as they are.",
        wrong,
    )
    question = Question(visit.say(RELEASE), text, danger=True, has_more=has_more)
    targets = [hold.seller_id for hold in found]
    return act_on_all(visit, sent, "/holds", targets, question=question, change=partial(_release, visit))


@router.post("/{sellerId}/release")
def release(seller_id: SellerInPath, visit: Visiting, sent: Sending) -> Response:
    """Publish a seller's held changes, once that is confirmed."""
    if not sent.is_confirmed:
        with visit.database.reading() as connection:
            suspicion = change_holds.find_open(connection, seller_id).suspicion
        text = visit.say_number(
            "%(number)s product that looks wrong is published as it is, with all other changes of %(seller)s.",
            "%(number)s products that look wrong are published as they are, with all other changes of %(seller)s.",
            suspicion.suspicious,
            seller=seller_id,
        )
        return ask(
            visit,
            sent,
            title=visit.say("Release these changes?"),
            text=text + " " + visit.say("Look at some of them on the marketplace first."),
            action=visit.say("Release"),
            danger=True,
        )
    report = _release(visit, seller_id)
    said = visit.say_number(
        "%(number)s product is published. Written to the audit log.",
        "%(number)s products are published. Written to the audit log.",
        sum(report.versions.values()),
    )
    return visit.done(sent.back or "/holds", said)


def _release(visit: Visit, seller_id: SellerId) -> ProcessingReport:
    database = visit.audited("hold.release", releasing.target(seller_id))
    return releasing.release(database, seller_id, now=utc_now)
