"""A trigger message: it asks for a crawl of one seller, or cannot be carried out."""

import json
from enum import StrEnum
from typing import cast

from mustit_pipeline.domain.errors import ValidationFailed
from mustit_pipeline.domain.values import SellerId

LARGEST_BODY_BYTES = 64 * 1024


class ParkReason(StrEnum):
    """Why a message is parked: it would be refused again on every delivery."""

    TOO_LARGE = "TOO_LARGE"
    NOT_JSON = "NOT_JSON"
    NO_SELLER_ID = "NO_SELLER_ID"
    BAD_SELLER_ID = "BAD_SELLER_ID"
    UNKNOWN_SELLER = "UNKNOWN_SELLER"
    INACTIVE_SELLER = "INACTIVE_SELLER"


def asked_seller(body: str) -> SellerId | ParkReason:
    """The seller whose crawl a message asks for, or why it cannot be read; other fields are ignored."""
    if len(body.encode(errors="replace")) > LARGEST_BODY_BYTES:
        return ParkReason.TOO_LARGE
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        return ParkReason.NOT_JSON
    seller_id = cast("dict[str, object]", message).get("sellerId") if isinstance(message, dict) else None
    if not isinstance(seller_id, str):
        return ParkReason.NO_SELLER_ID
    try:
        return SellerId(seller_id)
    except ValidationFailed:
        return ParkReason.BAD_SELLER_ID
