"""Events on their way to the product server: found, inspected, and sent again."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Response

from mustit_pipeline.api.paging import make_time_cursor, read_time_cursor
from mustit_pipeline.catalog.sql import history
from mustit_pipeline.console import live
from mustit_pipeline.console.forms import Sending, ask
from mustit_pipeline.console.pages.bulk import chosen_ids
from mustit_pipeline.console.pages.frame import SIZE, by_cursor, chosen, framed, seller_or_none
from mustit_pipeline.console.visits import Visit, Visiting
from mustit_pipeline.domain.errors import DomainError
from mustit_pipeline.domain.filters import IdPrefix
from mustit_pipeline.domain.states import OutboxStatus
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.monitoring.sql import health
from mustit_pipeline.monitoring.sql.activity import Moving
from mustit_pipeline.outbox.sql import outbox_list
from mustit_pipeline.outbox.sql.outbox_list import OutboxKey, Retried

router = APIRouter(prefix="/outbox")


@router.get("")
def list_events(
    visit: Visiting,
    seller: Annotated[str, Query(max_length=200)] = "",
    status: str = "",
    cursor: Annotated[str | None, Query(max_length=1024)] = None,
) -> Response:
    """Events, newest first."""
    wanted, of = chosen(OutboxStatus, status), seller_or_none(seller)
    behind = None if cursor is None else OutboxKey(*read_time_cursor(cursor))
    with visit.database.reading() as connection:
        found = outbox_list.newest(connection, status=wanted, seller_id=of, limit=SIZE, behind=behind)
        last = found.rows[-1] if found.more else None
        following = None if last is None else make_time_cursor(last.created_at, last.outbox_id)
        return framed(
            visit,
            connection,
            "outbox.html",
            events=live.address(Moving.EVENTS) if cursor is None else None,
            found=found.rows,
            seller=seller,
            status=wanted,
            statuses=list(OutboxStatus),
            failed=outbox_list.count_failed(connection, of),
            backlog=health.unsent_events(connection),
            pager=by_cursor(visit, "/outbox", cursor, following, seller=seller, status=wanted),
        )


@router.get("/{outbox_id}")
def event_page(outbox_id: UUID, visit: Visiting) -> Response:
    """One event with its tries."""
    with visit.database.reading() as connection:
        entry = outbox_list.find(connection, IdPrefix(str(outbox_id)))
        version = history.version(connection, entry.seller_id, entry.item_no, entry.version)
        return framed(visit, connection, "event.html", entry=entry, version=version)


@router.post("/retry")
def retry(visit: Visiting, sent: Sending) -> Response:
    """Send failed events again: one, those that were chosen, or all that match."""
    back, seller = sent.back or "/outbox", seller_or_none(sent.text("seller"))
    everything = sent.text("which") == "all"
    ids = chosen_ids(sent, "event")
    number = _failed(visit, seller) if everything else len(ids)
    if not number:
        return visit.done(back, visit.say("Nothing was chosen."), good=False)
    if not sent.is_confirmed and (everything or number > 1):
        text = visit.say_number(
            "%(number)s failed event is sent again, with all of its tries.",
            "%(number)s failed events are sent again, each with all of its tries.",
            number,
        )
        said = visit.say("Send again")
        return ask(visit, sent, title=visit.say("Send events again?"), text=text, action=said)
    waiting, superseded, reasons = _retry_all(visit, seller) if everything else _retry(visit, ids)
    text = visit.say(
        "%(waiting)s wait to be sent again, %(superseded)s are superseded by newer versions.",
        waiting=f"{waiting:,}",
        superseded=f"{superseded:,}",
    )
    if waiting or superseded:
        text = visit.say_logged(text)
    refused = " / ".join(dict.fromkeys(reasons[:3]))
    return visit.done(back, " ".join(part for part in (text, refused) if part), good=not reasons)


def _failed(visit: Visit, seller: SellerId | None) -> int:
    with visit.database.reading() as connection:
        return outbox_list.count_failed(connection, seller)


def _retry_all(visit: Visit, seller: SellerId | None) -> tuple[int, int, list[str]]:
    audited = visit.audited("outbox.retry", outbox_list.target_of_failed(seller))
    with audited.transaction() as connection:
        done = outbox_list.retry_all(connection, status=OutboxStatus.FAILED, seller_id=seller)
    return len(done.waiting), len(done.superseded), []


def _retry(visit: Visit, ids: list[UUID]) -> tuple[int, int, list[str]]:
    """One by one, each with its entry in the audit log."""
    done: list[Retried] = []
    reasons: list[str] = []
    for one in ids:
        try:
            with visit.audited("outbox.retry", outbox_list.target(one)).transaction() as connection:
                done.append(outbox_list.retry_one(connection, IdPrefix(str(one))))
        except DomainError as error:
            reasons.append(error.message(visit.language))
    return sum(len(one.waiting) for one in done), sum(len(one.superseded) for one in done), reasons
