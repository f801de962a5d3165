"""One seller: its crawl as it goes, its schedule, products and changes."""

from typing import Any

from fastapi import APIRouter, Response
from sqlalchemy import Connection

from mustit_pipeline.api.paths import SellerInPath
from mustit_pipeline.catalog.sql import history, product_list
from mustit_pipeline.catalog.sql.history import ChangeFilter
from mustit_pipeline.console import live
from mustit_pipeline.console.forms import Sending, ask
from mustit_pipeline.console.pages import sellers as actions
from mustit_pipeline.console.pages.crawl_progress import progress_of
from mustit_pipeline.console.pages.frame import framed
from mustit_pipeline.console.rendering import seller_path
from mustit_pipeline.console.visits import Undo, Visiting
from mustit_pipeline.crawling.sql import executions
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.sellers.sql import sellers

SHOWN_EXECUTIONS, SHOWN_PRODUCTS, SHOWN_CHANGES = 8, 10, 8
# One list at a time, and the last thing on the page: what arrives moves nothing.
LISTS = ("changes", "products", "crawls")

router = APIRouter(prefix="/sellers/{sellerId}")


@router.get("")
def seller_page(seller_id: SellerInPath, visit: Visiting, show: str = "") -> Response:
    """One seller, with one of its lists."""
    shown = show if show in LISTS else LISTS[0]
    with visit.database.reading() as connection:
        entry = sellers.find_scheduled(connection, seller_id)
        crawls = executions.newest(connection, seller_id, SHOWN_EXECUTIONS)
        present = executions.find_open(connection, seller_id) or next(iter(crawls.rows), None)
        return framed(
            visit,
            connection,
            "seller.html",
            events=live.address(seller=seller_id.value),
            entry=entry,
            seller=entry.seller,
            shown=shown,
            progress=None if present is None else progress_of(connection, visit, present),
            crawls=crawls,
            **_list(connection, seller_id, shown),
        )


def _list(connection: Connection, seller_id: SellerId, shown: str) -> dict[str, Any]:
    """What the list that is shown needs."""
    if shown == "changes":
        wanted = ChangeFilter(seller_id=seller_id)
        return {"changes": history.search_changes(connection, wanted, behind=None, limit=SHOWN_CHANGES)}
    if shown == "products":
        found = product_list.find(connection, seller_id=seller_id, words=None, behind=None, limit=SHOWN_PRODUCTS)
        return {"products": found, "total": product_list.count(connection, seller_id)}
    return {}


@router.post("/crawl")
def crawl(seller_id: SellerInPath, visit: Visiting, sent: Sending) -> Response:
    """Crawl the seller now."""
    joined = actions.crawl(visit, seller_id, full=sent.text("full") == "yes")
    if joined:
        said = visit.say("A crawl of this seller is under way already.")
    else:
        said = visit.say_logged(visit.say("The crawl begins within half a minute."))
    return visit.done(sent.back or seller_path(seller_id), said)


@router.post("/interval")
def interval(seller_id: SellerInPath, visit: Visiting, sent: Sending) -> Response:
    """Crawl the seller at another interval."""
    with visit.database.reading() as connection:
        seller, _ = sellers.get(connection, seller_id)
    actions.change_interval(visit, seller_id, actions.read_interval(sent.text("amount"), sent.text("unit")))
    said = visit.say_logged(visit.say("The interval is changed."))
    undo = Undo(f"{seller_path(seller_id)}/interval", actions.interval_fields(seller.interval))
    return visit.done(sent.back or seller_path(seller_id), said, undo=undo)


@router.post("/activate")
def activate(seller_id: SellerInPath, visit: Visiting, sent: Sending) -> Response:
    """Crawl the seller again."""
    actions.activate(visit, seller_id)
    said = visit.say_logged(visit.say("The seller is crawled again."))
    undo = Undo(f"{seller_path(seller_id)}/deactivate")
    return visit.done(sent.back or seller_path(seller_id), said, undo=undo)


@router.post("/deactivate")
def deactivate(seller_id: SellerInPath, visit: Visiting, sent: Sending) -> Response:
    """Stop crawling the seller, once that is confirmed."""
    if not sent.is_confirmed:
        return ask(
            visit,
            sent,
            title=visit.say("Deactivate %(seller)s?", seller=seller_id),
            text=visit.say("It is crawled no more, and a crawl under way is cancelled. Products and history stay."),
            action=visit.say("Deactivate"),
            danger=True,
        )
    actions.deactivate(visit, seller_id)
    said = visit.say_logged(visit.say("The seller is crawled no more."))
    undo = Undo(f"{seller_path(seller_id)}/activate")
    return visit.done(sent.back or seller_path(seller_id), said, undo=undo)
