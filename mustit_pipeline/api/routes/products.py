"""Products: their present state, every version, and what changed in between."""

from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import Field

from mustit_pipeline.api.answers.changes import ChangedField, ChangeSetAnswer
from mustit_pipeline.api.answers.products import DeliveryAnswer, ProductAnswer, VersionHead
from mustit_pipeline.api.context import Asking
from mustit_pipeline.api.filters import SellerInQuery, require_known
from mustit_pipeline.api.models import Answer, CursorPage, Text, Time
from mustit_pipeline.api.paging import Cursor, Size, make_cursor, read_cursor
from mustit_pipeline.catalog.history import compare, find_product, find_version
from mustit_pipeline.catalog.sql import history, product_list
from mustit_pipeline.catalog.sql.history import Version
from mustit_pipeline.catalog.sql.product_list import ProductKey
from mustit_pipeline.domain.values import LARGEST_ITEM_NO, ItemNo

router = APIRouter(prefix="/products", tags=["products"])

LARGEST_VERSION = 2**31 - 1
Item = Annotated[
    int, Path(alias="itemNo", ge=1, le=LARGEST_ITEM_NO, description="The marketplace's number", examples=[118005032])
]
VersionNumber = Annotated[int, Query(ge=0, le=LARGEST_VERSION, examples=[1])]


class ProductEntry(Answer):
    """A product in a list; name and price are those of the last listing that showed it."""

    seller_id: str = Field(examples=["dmont"])
    item_no: int = Field(examples=[118005032])
    name: str | None = Field(examples=["MINI BACKPACK"])
    price: int | None = Field(examples=[540000])
    version: int = Field(description="Of the newest version; 0 before the first", examples=[2])
    delivered_version: int = Field(description="The newest one that the product server is known to have", examples=[2])
    complete: bool = Field(description="Whether listing, detail and options have been seen")
    first_seen_at: Time = Field(examples=["2026-11-16T00:00:00+00:00"])
    last_seen_at: Time | None = Field(examples=["2026-11-17T00:00:00+00:00"])
    deleted_at: Time | None = Field(examples=[None])


class VersionAnswer(ChangeSetAnswer):
    """A version of a product, and its delivery."""

    delivery: DeliveryAnswer


class ComparisonAnswer(Answer):
    """Every field in which two versions differ; a deletion has no fields."""

    seller_id: str = Field(examples=["dmont"])
    item_no: int = Field(examples=[118005032])
    old: VersionHead
    new: VersionHead
    changes: list[ChangedField]


@router.get("")
def list_products(
    caller: Asking,
    seller_id: SellerInQuery,
    q: Annotated[
        Text | None,
        Query(max_length=200, description="An item number; within a seller also its first digits, or part of a name"),
    ] = None,
    cursor: Cursor = None,
    size: Size = 20,
) -> CursorPage[ProductEntry]:
    """Products by seller and number. A search for a name reads 2,000 products at a time: a page may hold few entries,
    or none, while `nextCursor` goes on.
    """
    behind = None if cursor is None else _key(cursor)
    with caller.database.reading() as connection:
        require_known(connection, seller_id)
        found = product_list.find(connection, seller_id=seller_id, words=q, behind=behind, limit=size)
        total = None if q else product_list.count(connection, seller_id)
    return CursorPage(
        content=[ProductEntry.of(product) for product in found.rows],
        size=size,
        next_cursor=None if found.behind is None else make_cursor(found.behind.seller_id, found.behind.item_no),
        total_elements=None if total is None else total.number,
        total_is_estimate=total is not None and total.estimated,
    )


@router.get("/{itemNo}")
def show_product(
    item_no: Item,
    caller: Asking,
    seller_id: SellerInQuery,
    version: Annotated[
        int | None, Query(ge=0, le=LARGEST_VERSION, description="The newest unless given", examples=[2])
    ] = None,
) -> ProductAnswer:
    """A product in its newest version, or in another one; `sellerId` where several sellers have the number."""
    with caller.database.reading() as connection:
        product = find_product(connection, ItemNo(item_no), seller_id)
        wanted = version if version is not None or not product.version else product.version
        shown = None if wanted is None else find_version(connection, product, wanted)
    return ProductAnswer.whole(product, shown)


@router.get("/{itemNo}/history")
def list_versions(
    item_no: Item, caller: Asking, seller_id: SellerInQuery, cursor: Cursor = None, size: Size = 20
) -> CursorPage[VersionAnswer]:
    """A product's versions, newest first, with what changed and whether the product server has it."""
    found, following = _versions(caller, item_no, seller_id, cursor, size)
    content = [
        VersionAnswer(**dict(ChangeSetAnswer.of(one.change_set)), delivery=DeliveryAnswer.of(one.delivery))
        for one in found
    ]
    return CursorPage(content=content, size=size, next_cursor=following)


@router.get("/{itemNo}/changes")
def list_product_changes(
    item_no: Item, caller: Asking, seller_id: SellerInQuery, cursor: Cursor = None, size: Size = 20
) -> CursorPage[ChangeSetAnswer]:
    """What changed of a product, newest first."""
    found, following = _versions(caller, item_no, seller_id, cursor, size)
    return CursorPage(content=[ChangeSetAnswer.of(one.change_set) for one in found], size=size, next_cursor=following)


@router.get("/{itemNo}/diff")
def compare_versions(
    item_no: Item, caller: Asking, seller_id: SellerInQuery, a: VersionNumber, b: VersionNumber
) -> ComparisonAnswer:
    """Two versions of a product, field by field: from `a` to `b`, older or newer."""
    with caller.database.reading() as connection:
        product = find_product(connection, ItemNo(item_no), seller_id)
        comparison = compare(connection, product, a, b)
    return ComparisonAnswer(
        seller_id=product.seller_id,
        item_no=product.item_no,
        old=VersionHead.of(comparison.old.change_set),
        new=VersionHead.of(comparison.new.change_set),
        changes=[ChangedField.of(change) for change in comparison.changes],
    )


def _key(cursor: str) -> ProductKey:
    seller_id, item_no = read_cursor(cursor, (str, int))
    return ProductKey(str(seller_id), int(item_no))


def _versions(
    caller: Asking, item_no: int, seller_id: SellerInQuery, cursor: str | None, size: int
) -> tuple[list[Version], str | None]:
    before = None if cursor is None else min(int(read_cursor(cursor, (int,))[0]), LARGEST_VERSION)
    with caller.database.reading() as connection:
        product = find_product(connection, ItemNo(item_no), seller_id)
        found = history.versions(
            connection,
            product.seller_id,
            product.item_no,
            limit=size,
            before=None if before is None else max(before, 0),
        )
    return found.rows, make_cursor(found.rows[-1].change_set.version) if found.more else None
