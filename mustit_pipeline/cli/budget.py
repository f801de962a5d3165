"""`mustit budget`: what the pool's requests buy, and what another pool, promise or interval would."""

import math
from typing import Annotated

import typer

from mustit_pipeline.api.answers.budget import BudgetAnswer
from mustit_pipeline.cli.list_options import cut
from mustit_pipeline.cli.output import Json, out, print_fields, print_json, print_table
from mustit_pipeline.cli.runtime import runtime
from mustit_pipeline.crawling.budget import MOST_SELLERS, SHOWN_SELLERS, Budget, SellerOrder, WhatIf, view
from mustit_pipeline.domain.values import CrawlingInterval, SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.sellers.sql import sellers

Boost = Annotated[
    float, typer.Argument(metavar="FACTOR", min=0.01, max=100, help="How many times as much; 1 is usual.")
]


def budget(
    *,
    days: Annotated[float, typer.Option("--days", min=0.01, max=365, help="Days whose requests per change count.")] = 7,
    agents: Annotated[
        int | None, typer.Option("--agents", min=1, max=100_000, help="What if the pool had so many agents?")
    ] = None,
    max_age: Annotated[
        float | None, typer.Option("--max-age", min=0.01, max=24 * 365, help="What if so many hours were promised?")
    ] = None,
    interval: Annotated[
        str | None, typer.Option("--interval", help="What if sellers were due so often? 1d to 30d, or 1h to 23h.")
    ] = None,
    seller: Annotated[
        str | None, typer.Option("--seller", metavar="ID", help="Only this seller; `--interval` is then its own.")
    ] = None,
    order: Annotated[SellerOrder, typer.Option("--by", help="Least fresh or oldest first.")] = SellerOrder.FRESHNESS,
    limit: Annotated[int, typer.Option("--limit", min=1, max=MOST_SELLERS, help="So many sellers.")] = SHOWN_SELLERS,
    as_json: Json = False,
) -> None:
    """Show the requests of a day, what they keep fresh, and what would keep the promised age.

    Example: `mustit budget --agents 100 --max-age 12`, or `mustit budget --seller dmont --interval 6h`
    """
    what_if = WhatIf(
        agents=agents, max_age=max_age, interval=None if interval is None else CrawlingInterval.parse(interval)
    )
    only = None if seller is None else SellerId(seller)
    with runtime() as ground, ground.database.reading() as connection:
        if only is not None:
            sellers.get(connection, only)
        found = view(
            connection,
            ground.settings,
            utc_now(),
            days=days,
            what_if=what_if,
            order=order,
            most=limit,
            only=None if only is None else only.value,
        )
    if as_json:
        print_json(BudgetAnswer.document_of(found))
    else:
        _tell(found, order)


def _tell(found: Budget, order: SellerOrder) -> None:
    for line in _verdict(found):
        out.print(line, highlight=False, soft_wrap=True)
    change = "none was found" if found.requests_per_change is None else f"{found.requests_per_change:.1f}"
    print_fields(
        {
            "requests a day": f"{found.capacity_per_day:,} with {found.agents:,} agents",
            "today": f"{found.used_today:,} used, {found.left_today:,} left",
            "reserved": f"{found.reserved:,} of this window, for sellers that are due in it",
            "expected cost of a day": f"{found.cost_per_day:,}, {found.listing_per_day:,} of them for listing pages",
            "the promise alone takes": f"{found.promise_per_day:,} a day",
            "products": f"{found.products:,}",
            "expected freshness": f"{100 * found.expected_freshness:.1f} %",
            "oldest detail or option set": _hours(found.oldest_age, "no product was fetched yet"),
            "requests per change found": change,
        }
    )
    if found.sellers:
        first = "least fresh first" if order is SellerOrder.FRESHNESS else "oldest first"
        print_table(
            f"sellers, {first}: {len(found.sellers):,} of {found.sellers_in_all:,}",
            ["seller", "products", "fresh", "oldest", "looked at every", "due every", "requests a day"],
            [
                (
                    cut(one.seller_id),
                    f"{one.products:,}",
                    f"{100 * one.expected_freshness:.1f} %",
                    _hours(one.oldest_age, "–"),
                    f"{one.look_hours:.1f} h",
                    f"{one.interval_hours:g} h",
                    f"{one.cost_per_day:,}",
                )
                for one in found.sellers
            ],
        )


def _hours(hours: float | None, otherwise: str) -> str:
    return otherwise if hours is None else f"{hours:.1f} h"


def _verdict(found: Budget) -> list[str]:
    """Whether the promise is kept, and what would keep it."""
    if found.promises_age:
        promise = f"No product gets older than {found.max_age:g} h"
        keeps = f"{promise}: the pool cannot keep that. It keeps {found.kept_age:.0f} h."
    else:
        promise = "Every due crawl fetches everything, each seller in its interval"
        keeps = f"{promise}: the pool cannot keep that. The oldest get {found.kept_age:.0f} h old."
    if found.promise_kept:
        return [f"{promise}: kept."]
    if found.affords_promise:
        return [f"{promise}: broken for now, though the requests are enough; the oldest are fetched first."]
    return [keeps, f"What would keep the promise, each by itself: {'; '.join(_remedies(found))}."]


def _remedies(found: Budget) -> list[str]:
    ways = found.remedies
    interval = (
        f"every seller due every {ways.interval_hours} h or less often"
        if ways.interval_hours is not None
        else "longer intervals alone are not enough"
    )
    longer = [f"MUSTIT_MAX_AGE_HOURS={math.ceil(found.kept_age)}"] if found.promises_age else []
    return [
        f"{ways.agents:,} agents instead of {found.agents:,}",
        f"{ways.products:,} products instead of {found.products:,}",
        interval,
        *longer,
    ]
