"""What the pool's requests buy, and what other numbers of agents or another promise would."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from mustit_pipeline.api.context import Asking
from mustit_pipeline.api.models import Answer
from mustit_pipeline.crawling.budget import Budget, view
from mustit_pipeline.foundation.clock import utc_now

router = APIRouter(prefix="/budget", tags=["budget"])


class OldestSeller(Answer):
    """A seller with an old detail or option set."""

    seller_id: str = Field(examples=["dmont"])
    products: int = Field(examples=[3464])
    oldest_age_hours: float = Field(examples=[21.5])
    look_hours: float = Field(description="How often its listing is looked at", examples=[6.0])


class BudgetAnswer(Answer):
    """The requests of a day, what they keep fresh, and what would keep the promised age."""

    agents: int = Field(examples=[50])
    capacity_per_day: int = Field(examples=[96000])
    used_today: int = Field(examples=[41200])
    left_today: int = Field(examples=[54800])
    cost_per_day: int = Field(description="What the recrawl policy is expected to spend", examples=[52000])
    products: int = Field(examples=[20000])
    expected_freshness: float = Field(description="Share of products that equal the marketplace's", examples=[0.977])
    max_age_hours: float = Field(description="The promise", examples=[24.0])
    kept_age_hours: float = Field(description="The age that the pool keeps", examples=[24.0])
    oldest_age_hours: float | None = Field(examples=[22.8])
    promise_kept: bool = Field(examples=[True])
    promise_requests_per_day: int = Field(examples=[40000])
    agents_needed: int = Field(description="As many would keep the promise", examples=[21])
    requests_per_change: float | None = Field(examples=[12.4])
    oldest_sellers: list[OldestSeller]


@router.get("")
def show_budget(
    caller: Asking,
    days: Annotated[float, Query(gt=0, le=365, description="Days whose requests per change count")] = 7,
    agents: Annotated[int | None, Query(ge=1, le=100_000, description="What if the pool had so many agents?")] = None,
    max_age: Annotated[
        float | None, Query(alias="maxAge", ge=0.01, le=8760, description="What if so many hours were promised?")
    ] = None,
) -> BudgetAnswer:
    """The request budget, as it is or as it would be."""
    with caller.database.reading() as connection:
        found = view(connection, caller.settings, utc_now(), days=days, agents_instead=agents, max_age_instead=max_age)
    return _answer(found)


def _answer(found: Budget) -> BudgetAnswer:
    return BudgetAnswer(
        agents=found.agents,
        capacity_per_day=found.capacity_per_day,
        used_today=found.used_today,
        left_today=found.left_today,
        cost_per_day=found.cost_per_day,
        products=found.products,
        expected_freshness=round(found.expected_freshness, 4),
        max_age_hours=found.max_age,
        kept_age_hours=round(found.kept_age, 2),
        oldest_age_hours=None if found.oldest_age is None else round(found.oldest_age, 2),
        promise_kept=found.promise_kept,
        promise_requests_per_day=found.promise_per_day,
        agents_needed=found.agents_needed,
        requests_per_change=None if found.requests_per_change is None else round(found.requests_per_change, 2),
        oldest_sellers=[
            OldestSeller(
                seller_id=one.seller_id,
                products=one.products,
                oldest_age_hours=round(one.oldest_hours, 2),
                look_hours=round(one.look_hours, 2),
            )
            for one in found.sellers
        ],
    )
