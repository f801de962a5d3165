"""Values that come in a path, read back as the client meant them."""

from typing import Annotated

from fastapi import Depends, Path

from mustit_pipeline.api.edge import SLASH
from mustit_pipeline.domain.filters import IdPrefix
from mustit_pipeline.domain.values import SellerId

LONGEST_SEGMENT = 512
_ID = "^([0-9a-fA-F]{4,32}|[0-9a-fA-F]{8}(-[0-9a-fA-F]{0,4}){1,3}(-[0-9a-fA-F]{0,12})?)$"


async def _seller_id(
    seller_id: Annotated[
        str,
        Path(
            alias="sellerId",
            max_length=LONGEST_SEGMENT,
            description="The seller's id, percent-encoded once: `bag%20%26%20shoes%2F50%25` is `bag & shoes/50%`",
            examples=["dmont"],
        ),
    ],
) -> SellerId:
    return SellerId(seller_id.replace(SLASH, "/"))


async def _id(
    given: Annotated[
        str,
        Path(
            alias="id",
            max_length=LONGEST_SEGMENT,
            description="The id, or its first digits, at least 4 of them",
            examples=["0b6f13c2"],
            # Only described here: an id of another form is refused with its own error.
            json_schema_extra={"pattern": _ID},
        ),
    ],
) -> IdPrefix:
    return IdPrefix(given)


SellerInPath = Annotated[SellerId, Depends(_seller_id)]
IdInPath = Annotated[IdPrefix, Depends(_id)]
