"""Sellers: found, registered, and changed one by one or many at once."""

import io
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Response

from mustit_pipeline.console import live
from mustit_pipeline.console.forms import Sending, Sent
from mustit_pipeline.console.languages import marked
from mustit_pipeline.console.pages.bulk import Question, act_on_all
from mustit_pipeline.console.pages.frame import MOST_AT_ONCE, SIZE, by_number, chosen, framed, unreadable_choice
from mustit_pipeline.console.rendering import seller_path
from mustit_pipeline.console.visits import Visit, Visiting
from mustit_pipeline.crawling import steering
from mustit_pipeline.crawling.steering import deactivate_seller
from mustit_pipeline.domain.errors import ValidationFailed
from mustit_pipeline.domain.states import SellerStatus
from mustit_pipeline.domain.values import CrawlingInterval, IntervalUnit, SellerId
from mustit_pipeline.foundation.audited import Target
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.monitoring.sql.activity import Moving
from mustit_pipeline.sellers import enrolment, registry
from mustit_pipeline.sellers.sql import sellers

router = APIRouter(prefix="/sellers")


class Action(StrEnum):
    """What can be done with a seller, or with many."""

    CRAWL = "crawl"
    ACTIVATE = "activate"
    DEACTIVATE = "deactivate"
    INTERVAL = "interval"


TITLES = {
    Action.CRAWL: marked("Crawl now"),
    Action.ACTIVATE: marked("Activate"),
    Action.DEACTIVATE: marked("Deactivate"),
    Action.INTERVAL: marked("Change the interval"),
}


@router.get("")
def list_sellers(
    visit: Visiting,
    q: Annotated[str, Query(max_length=200)] = "",
    status: str = "",
    page: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
) -> Response:
    """Sellers by id, found by part of id or name."""
    wanted, words = chosen(SellerStatus, status), q.replace("\0", "").strip()
    with visit.database.reading() as connection:
        found, total = sellers.find_page(connection, status=wanted, words=words or None, first=page * SIZE, size=SIZE)
        return framed(
            visit,
            connection,
            "sellers.html",
            events=live.address(Moving.CRAWLS),
            found=found,
            total=total,
            q=words,
            status=wanted,
            statuses=list(SellerStatus),
            pager=by_number(visit, "/sellers", page, total, q=words, status=wanted),
            actions=[(action, visit.say(TITLES[action])) for action in Action],
        )


@router.post("")
def register(visit: Visiting, sent: Sending) -> Response:
    """Register one seller; its first crawl is due at once."""
    seller_id, interval = SellerId(sent.text("seller_id")), _interval(sent)
    name = sent.text("name") or seller_id.value
    database = visit.audited("seller.register", registry.target(seller_id))
    registry.register(database, seller_id, name, interval, utc_now())
    said = visit.say("%(seller)s is registered. Its first crawl is due now.", seller=seller_id)
    return visit.done(seller_path(seller_id), visit.say_logged(said))


@router.post("/load")
def load(visit: Visiting, sent: Sending) -> Response:
    """Register the sellers of a CSV file."""
    file = sent.file("file")
    if file is None:
        return visit.done("/sellers", visit.say("Choose a CSV file first."), good=False)
    lines = io.TextIOWrapper(file.file, encoding="utf-8-sig", errors="replace").read().splitlines()
    report = enrolment.enrol(visit.audited("seller.load", Target(f"file {file.filename}")), lines, utc_now())
    added = visit.say(
        "%(added)s sellers are registered, %(known)s were known.",
        added=f"{len(report.added):,}",
        known=f"{report.known:,}",
    )
    said = [visit.say_logged(added)]
    if report.rejected:
        number, reason = report.rejected[0]
        said.append(
            visit.say(
                "%(number)s lines could not be read; the first is line %(line)s: %(reason)s",
                number=f"{len(report.rejected):,}",
                line=number,
                reason=reason,
            )
        )
    return visit.done("/sellers", " ".join(said), good=not report.rejected)


@router.post("/actions")
def act(visit: Visiting, sent: Sending) -> Response:
    """Do the same with the chosen sellers, or with all that match the filter."""
    action = chosen(Action, sent.text("action"))
    if action is None:
        raise unreadable_choice()
    targets, total = _targets(visit, sent)
    text = visit.say_number("This concerns %(number)s seller.", "This concerns %(number)s sellers.", len(targets))
    danger, has_more = action is Action.DEACTIVATE, total > len(targets)
    question = Question(visit.say(TITLES[action]), text, danger=danger, has_more=has_more)
    change = partial(_change(action, sent), visit)
    return act_on_all(visit, sent, "/sellers", targets, question=question, change=change)


def _targets(visit: Visit, sent: Sent) -> tuple[list[SellerId], int]:
    """The sellers of a form, as many as are changed at once, and how many match."""
    if sent.text("which") != "all":
        ids = [SellerId(text) for text in dict.fromkeys(sent.all("seller"))]
        return ids[:MOST_AT_ONCE], len(ids)
    words, status = sent.text("q") or None, chosen(SellerStatus, sent.text("status"))
    with visit.database.reading() as connection:
        found, total = sellers.find_page(connection, status=status, words=words, first=0, size=MOST_AT_ONCE)
    return [entry.seller_id for entry in found], total


def _change(action: Action, sent: Sent) -> Callable[[Visit, SellerId], object]:
    if action is Action.INTERVAL:
        interval = _interval(sent)
        return lambda visit, seller_id: change_interval(visit, seller_id, interval)
    return {Action.CRAWL: crawl, Action.ACTIVATE: activate, Action.DEACTIVATE: deactivate}[action]


def crawl(visit: Visit, seller_id: SellerId, *, full: bool = False) -> bool:
    """Crawl a seller now; says whether a crawl was open already."""
    actor = visit.who.actor()
    opened = steering.trigger(
        visit.audited("crawl.trigger", steering.target_of_trigger(seller_id)),
        seller_id,
        triggered_by=f"{actor.kind} {actor.name}",
        now=utc_now(),
        full_refetch=full,
    )
    return opened.joined


def activate(visit: Visit, seller_id: SellerId) -> None:
    """Crawl a seller again."""
    database = visit.audited("seller.activate", registry.target(seller_id))
    registry.activate(database, seller_id, utc_now())


def deactivate(visit: Visit, seller_id: SellerId) -> None:
    """Stop crawling a seller."""
    database = visit.audited("seller.deactivate", registry.target(seller_id))
    deactivate_seller(database, seller_id, utc_now())


def change_interval(visit: Visit, seller_id: SellerId, interval: CrawlingInterval) -> None:
    """Crawl a seller at another interval."""
    database = visit.audited("seller.interval", registry.target(seller_id))
    registry.change_interval(database, seller_id, interval, utc_now())


def _interval(sent: Sent) -> CrawlingInterval:
    return read_interval(sent.text("amount"), sent.text("unit"))


def interval_fields(interval: CrawlingInterval) -> tuple[tuple[str, str], ...]:
    """An interval as the fields of a form have it."""
    unit = "d" if interval.unit is IntervalUnit.DAYS else "h"
    return (("amount", str(interval.amount)), ("unit", unit))


def read_interval(amount: str, unit: str) -> CrawlingInterval:
    """An interval of a form: a number, and days or hours."""
    if not amount.isascii() or not amount.isdecimal() or len(amount) > 4 or unit not in ("d", "h"):
        raise ValidationFailed(
            "VALIDATION_INTERVAL_FORMAT",
            korean="크롤링 주기는 1-30일 또는 1-23시간이어야 합니다",
            english="A crawling interval is 1-30 days or 1-23 hours",
        )
    return CrawlingInterval.parse(f"{amount}{unit}")
