"""`mustit budget`: what the pool's requests buy, and what other numbers of agents or another promise would."""

import math
from typing import Annotated, Any

import typer

from mustit_pipeline.cli.list_options import cut
from mustit_pipeline.cli.output import Json, out, print_fields, print_json, print_table
from mustit_pipeline.cli.runtime import runtime
from mustit_pipeline.crawling.budget import Budget, view
from mustit_pipeline.foundation.clock import utc_now

Boost = Annotated[
    float, typer.Argument(metavar="FACTOR", min=0.01, max=100, help="How many times as much; 1 is usual.")
]


def budget(
    days: Annotated[float, typer.Option("--days", min=0.01, max=365, help="Days whose requests per change count.")] = 7,
    agents: Annotated[
        int | None, typer.Option("--agents", min=1, max=100_000, help="What if the pool had so many agents?")
    ] = None,
    max_age: Annotated[
        float | None, typer.Option("--max-age", min=0.01, max=24 * 365, help="What if so many hours were promised?")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the requests of a day, what they keep fresh, and what would keep the promised age.

    Example: `mustit budget --agents 100 --max-age 12`
    """
    with runtime() as ground, ground.database.reading() as connection:
        found = view(connection, ground.settings, utc_now(), days=days, agents_instead=agents, max_age_instead=max_age)
    if as_json:
        print_json(document(found))
    else:
        _tell(found)


def document(found: Budget) -> dict[str, Any]:
    """What `budget --json` prints."""
    return {
        "agents": found.agents,
        "capacityPerDay": found.capacity_per_day,
        "usedToday": found.used_today,
        "leftToday": found.left_today,
        "costPerDay": found.cost_per_day,
        "products": found.products,
        "expectedFreshness": round(found.expected_freshness, 4),
        "maxAgeHours": found.max_age,
        "keptAgeHours": round(found.kept_age, 2),
        "oldestAgeHours": None if found.oldest_age is None else round(found.oldest_age, 2),
        "promiseKept": found.promise_kept,
        "promiseRequestsPerDay": found.promise_per_day,
        "agentsNeeded": found.agents_needed,
        "requestsPerChange": None if found.requests_per_change is None else round(found.requests_per_change, 2),
        "oldestSellers": [
            {
                "sellerId": one.seller_id,
                "products": one.products,
                "oldestAgeHours": round(one.oldest_hours, 2),
                "lookHours": round(one.look_hours, 2),
            }
            for one in found.sellers
        ],
    }


def _tell(found: Budget) -> None:
    out.print(_verdict(found), highlight=False, soft_wrap=True)
    oldest = "no product was fetched yet" if found.oldest_age is None else f"{found.oldest_age:.1f} h"
    change = "none was found" if found.requests_per_change is None else f"{found.requests_per_change:.1f}"
    print_fields(
        {
            "requests a day": f"{found.capacity_per_day:,} with {found.agents:,} agents",
            "today": f"{found.used_today:,} used, {found.left_today:,} left",
            "expected cost of a day": f"{found.cost_per_day:,}",
            "products": f"{found.products:,}",
            "expected freshness": f"{100 * found.expected_freshness:.1f} %",
            "oldest detail or option set": oldest,
            "requests per change found": change,
        }
    )
    if found.sellers:
        print_table(
            "oldest first",
            ["seller", "products", "oldest", "looked at every"],
            [
                (cut(one.seller_id), f"{one.products:,}", f"{one.oldest_hours:.1f} h", f"{one.look_hours:.1f} h")
                for one in found.sellers
            ],
        )


def _verdict(found: Budget) -> str:
    """Whether the promise is kept, and what would keep it."""
    promise = f"No product gets older than {found.max_age:g} h"
    if found.promise_kept:
        return f"{promise}: kept."
    if found.affords_promise:
        return f"{promise}: broken for now, though the requests are enough; the oldest are fetched first."
    share = found.capacity_per_day / max(found.promise_per_day, 1)
    return (
        f"{promise}: the pool cannot keep that. It keeps {found.kept_age:.0f} h. What would keep the promise: "
        f"{found.agents_needed:,} agents, or {int(found.products * share):,} products instead of {found.products:,}, "
        f"or MUSTIT_MAX_AGE_HOURS={math.ceil(found.kept_age)}."
    )
