"""What the pool's requests buy, and what another pool, promise or interval would."""

from typing import Annotated

from fastapi import APIRouter, Query

from mustit_pipeline.api.answers.budget import BudgetAnswer
from mustit_pipeline.api.context import Asking
from mustit_pipeline.api.models import Text
from mustit_pipeline.crawling.budget import MOST_SELLERS, SHOWN_SELLERS, SellerOrder, WhatIf, view
from mustit_pipeline.domain.values import CrawlingInterval, SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.sellers.sql import sellers

router = APIRouter(prefix="/budget", tags=["budget"])


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
