"""The request budget: what it keeps fresh, and what if."""

from collections.abc import Sequence
from datetime import timedelta

from fastapi import APIRouter, Response
from sqlalchemy import Connection

from mustit_pipeline.agents import roster
from mustit_pipeline.console import charts, live
from mustit_pipeline.console.formats import Formats
from mustit_pipeline.console.pages.frame import framed
from mustit_pipeline.console.visits import Visiting
from mustit_pipeline.crawling.budget import SellerFreshness, SellerOrder, WhatIf, view
from mustit_pipeline.domain.errors import DomainError, ValidationFailed
from mustit_pipeline.domain.values import CrawlingInterval, SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.monitoring import staleness
from mustit_pipeline.monitoring.sql.activity import Moving
from mustit_pipeline.monitoring.staleness import Sampled, SellerSize
from mustit_pipeline.sellers.sql import sellers

router = APIRouter()

MOST_AGENTS, MOST_HOURS = 100_000, 8760
SHOWN, LONGEST_NAME = 20, 14


@router.get("/budget")
def budget(  # noqa: PLR0917
    visit: Visiting, agents: str = "", hours: str = "", interval: str = "", seller: str = "", by: str = ""
) -> Response:
    """What the pool may ask for, what that keeps fresh, and what another pool, promise or interval would."""
    now = utc_now()
    instead, promised, every = _number(agents, MOST_AGENTS), _number(hours, MOST_HOURS), _interval(interval)
    order = SellerOrder.AGE if by == SellerOrder.AGE else SellerOrder.FRESHNESS
    since = now - timedelta(days=visit.settings.truth_window_days)
    what_if = WhatIf(agents=instead, max_age=promised and float(promised), interval=every)
    with visit.database.reading() as connection:
        only = seller if seller and _is_known(connection, seller) else None
        found = view(connection, visit.settings, now, what_if=what_if, order=order, most=SHOWN, only=only)
        sampled = staleness.shares(connection, since, now)
        pool = roster.pool_status(connection, visit.settings, now)
        window = visit.settings.window_seconds / 3600
        return framed(
            visit,
            connection,
            "budget.html",
            events=live.address(Moving.CRAWLS),
            pool=pool,
            allowed=pool.available * visit.settings.requests_per_hour,
            per_day=int(pool.available * visit.settings.requests_per_hour * 24 / window),
            agents=instead,
            hours=promised,
            interval=every,
            seller=only,
            order=order,
            found=found,
            chart=_freshness_chart(found.sellers, Formats(visit.language)),
            sources=[(source, staleness.of_source(sampled, source)) for source in Sampled],
            sizes=[(size, staleness.of_size(sampled, size)) for size in SellerSize],
        )


def _freshness_chart(sellers: Sequence[SellerFreshness], formats: Formats) -> charts.Bars:
    """Expected freshness by seller; the axis begins below the least fresh one, for small differences to be seen."""
    rows = [
        (cut(one.seller_id), 100 * one.expected_freshness, formats.percent(100 * one.expected_freshness, 1))
        for one in sellers
    ]
    lowest = min((share for _, share, _ in rows), default=0.0)
    low = 0.0 if lowest < 50 else 50.0 if lowest < 90 else 90.0
    return charts.bars(rows, low, 100.0, [(mark, formats.percent(mark, 0)) for mark in (low, (low + 100) / 2, 100.0)])


def cut(seller_id: str) -> str:
    """A seller's id that fits beside its bar."""
    return seller_id if len(seller_id) <= LONGEST_NAME else f"{seller_id[: LONGEST_NAME - 1]}…"


def _is_known(connection: Connection, seller: str) -> bool:
    try:
        sellers.get(connection, SellerId(seller))
    except DomainError:
        return False
    return True


def _interval(text: str) -> CrawlingInterval | None:
    """An interval of a form, if it is one."""
    try:
        return CrawlingInterval.parse(text)
    except ValidationFailed:
        return None


def _number(text: str, most: int) -> int | None:
    """A whole number of a form, if it is one."""
    return (
        min(max(int(text), 1), most) if text.isascii() and text.isdigit() and len(text) < len(str(most)) + 1 else None
    )
