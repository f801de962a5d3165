"""What a message from outside asks for: a crawl of one seller, or something that nobody can do."""

import json
from enum import StrEnum
from typing import cast

from mustit_pipeline.domain.errors import ValidationFailed
from mustit_pipeline.domain.values import SellerId

LARGEST_BODY_BYTES = 64 * 1024


class ParkReason(StrEnum):
    """Why a message is put aside: it would be refused again however often it came."""

    TOO_LARGE = "TOO_LARGE"
    NOT_JSON = "NOT_JSON"
    NO_SELLER_ID = "NO_SELLER_ID"
    BAD_SELLER_ID = "BAD_SELLER_ID"
    UNKNOWN_SELLER = "UNKNOWN_SELLER"
    INACTIVE_SELLER = "INACTIVE_SELLER"


def asked_seller(body: str) -> SellerId | ParkReason:
    """Whose crawl a message asks for, or why it cannot be read; whatever else it says is somebody else's."""
    if len(body.encode(errors="replace")) > LARGEST_BODY_BYTES:
        return ParkReason.TOO_LARGE
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return ParkReason.NOT_JSON
    seller_id = cast("dict[str, object]", said).get("sellerId") if isinstance(said, dict) else None
    if not isinstance(seller_id, str):
        return ParkReason.NO_SELLER_ID
    try:
        return SellerId(seller_id)
    except ValidationFailed:
        return ParkReason.BAD_SELLER_ID
