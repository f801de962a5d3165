"""The request budget."""

from typing import Annotated

from pydantic import Field

from mustit_pipeline.api.models import Answer, Rounded, rounded

Share = Annotated[float, rounded(4)]


class SellerInBudget(Answer):
    """What one seller may expect."""

    seller_id: str = Field(examples=["dmont"])
    products: int = Field(examples=[3464])
    expected_freshness: Share = Field(description="Share of details and option sets that are fresh", examples=[0.961])
    oldest_age_hours: Rounded | None = Field(
        validation_alias="oldest_age", description="null before its first crawl has ended", examples=[21.5]
    )
    look_hours: Rounded = Field(description="How often its listing is looked at", examples=[6.0])
    interval_hours: float = Field(description="How often it is due", examples=[24.0])
    cost_per_day: int = Field(description="Requests that a day is expected to take", examples=[8100])


class WouldKeepPromise(Answer):
    """What would keep the promise, each by itself."""

    agents: int = Field(examples=[21])
    products: int = Field(description="So many products at most", examples=[45600])
    interval_hours: int | None = Field(
        description="All sellers due so seldom; null where longer intervals are not enough", examples=[24]
    )
    max_age_hours: Rounded = Field(
        validation_alias="max_age", description="A promise of so many hours", examples=[24.0]
    )


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
    listing_requests_per_day: int = Field(
        validation_alias="listing_per_day", description="Listing pages among them", examples=[960]
    )
    products: int = Field(examples=[20000])
    expected_freshness: Share = Field(description="Share of details and option sets that are fresh", examples=[0.977])
    max_age_hours: float = Field(validation_alias="max_age", description="The promise", examples=[24.0])
    kept_age_hours: Rounded = Field(
        validation_alias="kept_age", description="The age that the pool keeps", examples=[24.0]
    )
    oldest_age_hours: Rounded | None = Field(validation_alias="oldest_age", examples=[22.8])
    promise_kept: bool = Field(examples=[True])
    promise_requests_per_day: int = Field(validation_alias="promise_per_day", examples=[40000])
    would_keep_promise: WouldKeepPromise = Field(validation_alias="remedies")
    requests_per_change: Rounded | None = Field(examples=[12.4])
    sellers: list[SellerInBudget] = Field(description="The first sellers in the order that was asked for")
    sellers_in_all: int = Field(examples=[12])
