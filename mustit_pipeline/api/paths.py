"""Values that come in a path, read back as the client meant them."""

from typing import Annotated

from fastapi import Depends, Path

from mustit_pipeline.api.edge import SLASH
from mustit_pipeline.domain.values import SellerId

LONGEST_SEGMENT = 512


async def _seller_id(
    seller_id: Annotated[
        str,
        Path(
            max_length=LONGEST_SEGMENT,
            description="The seller's id, percent-encoded once: `bag%20%26%20shoes%2F50%25` is `bag & shoes/50%`",
            examples=["dmont"],
        ),
    ],
) -> SellerId:
    return SellerId(seller_id.replace(SLASH, "/"))


SellerInPath = Annotated[SellerId, Depends(_seller_id)]
