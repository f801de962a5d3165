"""What the pool's requests buy, and what another pool, promise or interval would."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from mustit_pipeline.api.context import Asking
from mustit_pipeline.api.models import Answer, Text
from mustit_pipeline.crawling.budget import (
    MOST_SELLERS,
    SHOWN_SELLERS,
    Budget,
    SellerOrder,
    WhatIf,
    view,
)
from mustit_pipeline.domain.values import CrawlingInterval, SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.sellers.sql import sellers

router = APIRouter(prefix="/budget", tags=["budget"])


class SellerInBudget(Answer):
    """What one seller may expect."""

    seller_id: str = Field(examples=["dmont"])
    products: int = Field(examples=[3464])
    expected_freshness: float = Field(description="Share of details and option sets that are fresh", examples=[0.961])
    oldest_age_hours: float | None = Field(description="null before its first crawl has ended", examples=[21.5])
    look_hours: float = Field(description="How often its listing is looked at", examples=[6.0])
    interval_hours: float = Field(description="How often it is due", examples=[24.0])
    cost_per_day: int = Field(description="Requests that a day is expected to take", examples=[8100])


class WouldKeepPromise(Answer):
    """What would keep the promise, each by itself."""

    agents: int = Field(examples=[21])
    products: int = Field(description="So many products at most", examples=[45600])
    interval_hours: int | None = Field(
        description="All sellers due so seldom; null where longer intervals are not enough", examples=[24]
    )
    max_age_hours: float = Field(description="A promise of so many hours", examples=[24.0])


class BudgetAnswer(Answer):
    """The requests of a day, what they keep fresh, and what would keep the promise."""

    promises_age: bool = Field(
        description="false: every due crawl fetches everything, and the promise is each seller's interval",
        examples=[True],
    )
    agents: int = Field(examples=[50])
    capacity_per_day: int = Field(examples=[96000])
    used_today: int = Field(examples=[41200])
    left_today: int = Field(examples=[54800])
    reserved: int = Field(
        description="Requests of the present window that light crawls leave to sellers which are due in it",
        examples=[1200],
    )
    cost_per_day: int = Field(description="What crawls are expected to spend", examples=[52000])
    listing_requests_per_day: int = Field(description="Listing pages among them", examples=[960])
    products: int = Field(examples=[20000])
    expected_freshness: float = Field(description="Share of details and option sets that are fresh", examples=[0.977])
    max_age_hours: float = Field(description="The promise", examples=[24.0])
    kept_age_hours: float = Field(description="The age that the pool keeps", examples=[24.0])
    oldest_age_hours: float | None = Field(examples=[22.8])
    promise_kept: bool = Field(examples=[True])
    promise_requests_per_day: int = Field(examples=[40000])
    would_keep_promise: WouldKeepPromise
    requests_per_change: float | None = Field(examples=[12.4])
    sellers: list[SellerInBudget] = Field(description="The first sellers in the order that was asked for")
    sellers_in_all: int = Field(examples=[12])

    @classmethod
    def of(cls, found: Budget) -> "BudgetAnswer":
        """A budget, rounded; `mustit budget --json` prints the same."""
        return cls(
            promises_age=found.promises_age,
            agents=found.agents,
            capacity_per_day=found.capacity_per_day,
            used_today=found.used_today,
            left_today=found.left_today,
            reserved=found.reserved,
            cost_per_day=found.cost_per_day,
            listing_requests_per_day=found.listing_per_day,
            products=found.products,
            expected_freshness=round(found.expected_freshness, 4),
            max_age_hours=found.max_age,
            kept_age_hours=round(found.kept_age, 2),
            oldest_age_hours=_rounded(found.oldest_age),
            promise_kept=found.promise_kept,
            promise_requests_per_day=found.promise_per_day,
            would_keep_promise=WouldKeepPromise(
                agents=found.remedies.agents,
                products=found.remedies.products,
                interval_hours=found.remedies.interval_hours,
                max_age_hours=round(found.kept_age, 2),
            ),
            requests_per_change=_rounded(found.requests_per_change),
            sellers=[
                SellerInBudget(
                    seller_id=one.seller_id,
                    products=one.products,
                    expected_freshness=round(one.expected_freshness, 4),
                    oldest_age_hours=_rounded(one.oldest_age),
                    look_hours=round(one.look_hours, 2),
                    interval_hours=one.interval_hours,
                    cost_per_day=one.cost_per_day,
                )
                for one in found.sellers
            ],
            sellers_in_all=found.sellers_in_all,
        )


@router.get("")
def show_budget(
    caller: Asking,
    *,
    days: Annotated[float, Query(gt=0, le=365, description="Days whose requests per change count")] = 7,
    agents: Annotated[int | None, Query(ge=1, le=100_000, description="What if the pool had so many agents?")] = None,
    max_age: Annotated[
        float | None, Query(alias="maxAge", ge=0.01, le=8760, description="What if so many hours were promised?")
    ] = None,
    interval: Annotated[
        str | None, Query(max_length=5, description="What if sellers were due so often? `6h` or `7d`")
    ] = None,
    seller_id: Annotated[
        Text | None,
        Query(alias="sellerId", max_length=200, description="Only this seller; another interval is its own"),
    ] = None,
    order: Annotated[SellerOrder, Query(alias="by", description="Least fresh or oldest first")] = SellerOrder.FRESHNESS,
    size: Annotated[int, Query(ge=1, le=MOST_SELLERS, description="So many sellers")] = SHOWN_SELLERS,
) -> BudgetAnswer:
    """The request budget, as it is or as it would be."""
    every = None if interval is None else CrawlingInterval.parse(interval)
    wanted = None if seller_id is None else SellerId(seller_id)
    with caller.database.reading() as connection:
        if wanted is not None:
            sellers.get(connection, wanted)
        found = view(
            connection,
            caller.settings,
            utc_now(),
            days=days,
            what_if=WhatIf(agents=agents, max_age=max_age, interval=every),
            order=order,
            most=size,
            only=None if wanted is None else wanted.value,
        )
    return BudgetAnswer.of(found)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
