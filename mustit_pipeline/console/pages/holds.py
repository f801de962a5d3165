"""Changes that are held back because too many of a seller's products look wrong at once."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from mustit_pipeline.api.paths import SellerInPath
from mustit_pipeline.catalog import releasing
from mustit_pipeline.catalog.sql import change_holds
from mustit_pipeline.console import live
from mustit_pipeline.console.forms import Sending, ask
from mustit_pipeline.console.pages.frame import SIZE, by_number, chosen, framed
from mustit_pipeline.console.visits import Visiting
from mustit_pipeline.domain.states import ChangeHoldStatus
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.monitoring.sql.activity import Moving

router = APIRouter(prefix="/holds")


@router.get("")
def list_holds(visit: Visiting, status: str = "", page: Annotated[int, Query(ge=0, le=1_000_000)] = 0) -> Response:
    """Holds, open ones first, with examples."""
    wanted = chosen(ChangeHoldStatus, status)
    with visit.database.reading() as connection:
        found = change_holds.newest(connection, status=wanted, first=page * SIZE, limit=SIZE)
        total = change_holds.count(connection, status=wanted)
        return framed(
            visit,
            connection,
            "holds.html",
            events=live.address(Moving.HOLDS),
            found=found.rows,
            status=wanted,
            statuses=list(ChangeHoldStatus),
            pager=by_number(visit, "/holds", page, total, status=wanted),
        )


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
    database = visit.audited("hold.release", f"change hold of {seller_id}", releasing.look(seller_id))
    report = releasing.release(database, seller_id, now=utc_now)
    said = visit.say_number(
        "%(number)s product is published. Written to the audit log.",
        "%(number)s products are published. Written to the audit log.",
        sum(report.versions.values()),
    )
    return visit.done(sent.back or "/holds", said)
