"""What the marketplace has answered about a product: the stored bodies."""

from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import Field

from mustit_pipeline.api.context import Asking
from mustit_pipeline.api.filters import SellerInQuery
from mustit_pipeline.api.models import Answer, Time
from mustit_pipeline.api.paging import Size
from mustit_pipeline.api.routes.products import Item
from mustit_pipeline.catalog.history import find_product
from mustit_pipeline.catalog.sql import raw
from mustit_pipeline.domain.states import RawStatus, TaskType
from mustit_pipeline.domain.values import LARGEST_ITEM_NO, ItemNo

router = APIRouter(prefix="/products/{itemNo}/bodies", tags=["products"])

LONGEST = 1_000_000


class BodyEntry(Answer):
    """A stored body, without its text."""

    raw_id: int = Field(examples=[4711])
    source: TaskType
    status: RawStatus
    size: int = Field(description="In bytes", examples=[11669])
    error_code: str | None = Field(examples=[None])
    error_text: str | None = Field(examples=[None])
    fetched_at: Time = Field(examples=["2026-11-17T00:00:00+00:00"])


class BodiesAnswer(Answer):
    """The newest bodies of a product's own calls; older ones go by their age."""

    bodies: list[BodyEntry]


class BodyAnswer(BodyEntry):
    """A stored body as it was received."""

    text: str = Field(description=f"The first {LONGEST:,} characters", examples=['{"moduleList": []}'])


@router.get("")
def list_bodies(item_no: Item, caller: Asking, seller_id: SellerInQuery, size: Size = 20) -> BodiesAnswer:
    """The stored bodies of a product, newest first."""
    with caller.database.reading() as connection:
        product = find_product(connection, ItemNo(item_no), seller_id)
        found = raw.of_item(connection, product.seller_id, product.item_no, size)
    return BodiesAnswer(bodies=[BodyEntry.of(one) for one in found])


@router.get("/{rawId}")
def show_body(
    item_no: Item,
    raw_id: Annotated[int, Path(alias="rawId", ge=1, le=LARGEST_ITEM_NO, examples=[4711])],
    caller: Asking,
) -> BodyAnswer:
    """One of them with its text."""
    with caller.database.reading() as connection:
        shown = raw.show_body(connection, raw_id, LONGEST)
    if shown.entry.item_no != item_no:
        raise raw.unknown(raw_id)
    return BodyAnswer(**dict(BodyEntry.of(shown.entry)), text=shown.text)
