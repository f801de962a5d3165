"""Values that come in a query, and that several lists take."""

from typing import Annotated

from fastapi import Depends, Query
from sqlalchemy import Connection

from mustit_pipeline.api.models import Text, Time
from mustit_pipeline.api.paths import LONGEST_SEGMENT
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.sellers.sql import sellers


async def _seller_id(
    seller_id: Annotated[
        Text | None,
        Query(alias="sellerId", min_length=1, max_length=LONGEST_SEGMENT, description="Only this seller's"),
    ] = None,
) -> SellerId | None:
    return None if seller_id is None else SellerId(seller_id)


SellerInQuery = Annotated[SellerId | None, Depends(_seller_id)]
Since = Annotated[Time | None, Query(description="Only from then on; UTC unless it has a zone")]
Until = Annotated[Time | None, Query(description="Only before then; UTC unless it has a zone")]


def require_known(connection: Connection, seller_id: SellerId | None) -> None:
    """Refuse a seller that is not registered: an empty list would say that it has nothing."""
    if seller_id is not None:
        sellers.get(connection, seller_id)
