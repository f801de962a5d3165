"""Products: their present state, every version, and what changed in between."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import Field

from mustit_pipeline.api.context import Asking
from mustit_pipeline.api.filters import SellerInQuery, require_known
from mustit_pipeline.api.models import Answer, CursorPage, Text, Time
from mustit_pipeline.api.paging import Cursor, Size, make_cursor, read_cursor
from mustit_pipeline.api.routes.changes import ChangedField, ChangeSetAnswer, change_set_answer, changed_fields
from mustit_pipeline.catalog.history import compare, find_product, find_version, state
from mustit_pipeline.catalog.sql import history, product_list
from mustit_pipeline.catalog.sql.history import Delivery, KnownProduct, Version
from mustit_pipeline.catalog.sql.product_list import ListedProduct, ProductKey
from mustit_pipeline.domain.states import LifeCycle, OutboxStatus
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


class HashesAnswer(Answer):
    """SHA-256 of what each source said last, of the merged data, and of the newest version."""

    listing: str | None = Field(examples=["9f86d081884c7d65"])
    detail: str | None = Field(examples=["60303ae22b998861"])
    options: str | None = Field(examples=["fd61a03af4f77d87"])
    data: str | None = Field(examples=["a4e624d686e03ed2"])
    published: str | None = Field(examples=["a4e624d686e03ed2"])


class DeliveryAnswer(Answer):
    """How far a version is on its way to the product server."""

    outbox_id: str | None = Field(examples=["0b6f13c2-0000-4000-8000-000000000002"])
    status: OutboxStatus | None
    superseded: bool = Field(description="Not sent, because a newer version replaced it")
    completed_at: Time | None = Field(examples=["2026-11-17T00:00:05+00:00"])


class ProductAnswer(Answer):
    """A product in one of its versions."""

    seller_id: str = Field(examples=["dmont"])
    item_no: int = Field(examples=[118005032])
    version: int = Field(description="The version that is shown; 0 before the first", examples=[2])
    newest_version: int = Field(examples=[2])
    delivered_version: int = Field(examples=[2])
    life_cycle: LifeCycle | None
    detected_at: Time | None = Field(examples=["2026-11-17T00:00:00+00:00"])
    complete: bool
    absent_sweeps: int = Field(description="Complete sweeps in a row that did not show it", examples=[0])
    first_seen_at: Time = Field(examples=["2026-11-16T00:00:00+00:00"])
    last_seen_at: Time | None = Field(examples=["2026-11-17T00:00:00+00:00"])
    deleted_at: Time | None = Field(examples=[None])
    hashes: HashesAnswer
    delivery: DeliveryAnswer | None = Field(description="Of the version that is shown")
    product_data: dict[str, Any] | None = Field(
        description="As the product server gets it; null in a deletion",
        examples=[{"itemNo": 118005032, "name": "MINI BACKPACK", "discountPrice": 540000, "stock": 3}],
    )


class VersionAnswer(ChangeSetAnswer):
    """A version of a product, and its delivery."""

    delivery: DeliveryAnswer


class VersionHead(Answer):
    """One side of a comparison."""

    version: int = Field(examples=[1])
    life_cycle: LifeCycle
    detected_at: Time = Field(examples=["2026-11-16T00:00:00+00:00"])


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
        content=[_entry(product) for product in found.rows],
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
    return _product(product, shown)


@router.get("/{itemNo}/history")
def list_versions(
    item_no: Item, caller: Asking, seller_id: SellerInQuery, cursor: Cursor = None, size: Size = 20
) -> CursorPage[VersionAnswer]:
    """A product's versions, newest first, with what changed and whether the product server has it."""
    found, following = _versions(caller, item_no, seller_id, cursor, size)
    content = [
        VersionAnswer(**change_set_answer(one.change_set).model_dump(), delivery=_delivery(one.delivery))
        for one in found
    ]
    return CursorPage(content=content, size=size, next_cursor=following)


@router.get("/{itemNo}/changes")
def list_product_changes(
    item_no: Item, caller: Asking, seller_id: SellerInQuery, cursor: Cursor = None, size: Size = 20
) -> CursorPage[ChangeSetAnswer]:
    """What changed of a product, newest first."""
    found, following = _versions(caller, item_no, seller_id, cursor, size)
    return CursorPage(content=[change_set_answer(one.change_set) for one in found], size=size, next_cursor=following)


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
        old=_head(comparison.old),
        new=_head(comparison.new),
        changes=changed_fields([change.as_json() for change in comparison.changes]),
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


def _entry(product: ListedProduct) -> ProductEntry:
    return ProductEntry(
        seller_id=product.seller_id,
        item_no=product.item_no,
        name=product.name,
        price=product.price,
        version=product.version,
        delivered_version=product.delivered_version,
        complete=product.complete,
        first_seen_at=product.first_seen_at,
        last_seen_at=product.last_seen_at,
        deleted_at=product.deleted_at,
    )


def _product(product: KnownProduct, version: Version | None) -> ProductAnswer:
    data = product.data if version is None else version.data
    return ProductAnswer(
        seller_id=product.seller_id,
        item_no=product.item_no,
        version=0 if version is None else version.change_set.version,
        newest_version=product.version,
        delivered_version=product.delivered_version,
        life_cycle=None if version is None else version.change_set.life_cycle,
        detected_at=None if version is None else version.change_set.detected_at,
        complete=product.complete,
        absent_sweeps=product.absent_sweeps,
        first_seen_at=product.created_at,
        last_seen_at=product.last_seen_at,
        deleted_at=product.deleted_at,
        hashes=HashesAnswer(
            listing=product.hashes.listing,
            detail=product.hashes.detail,
            options=product.hashes.options,
            data=product.hashes.data,
            published=product.hashes.published,
        ),
        delivery=None if version is None else _delivery(version.delivery),
        product_data=None if data is None else dict(state(data)),
    )


def _delivery(delivery: Delivery) -> DeliveryAnswer:
    return DeliveryAnswer(
        outbox_id=None if delivery.outbox_id is None else str(delivery.outbox_id),
        status=delivery.status,
        superseded=delivery.superseded,
        completed_at=delivery.completed_at,
    )


def _head(version: Version) -> VersionHead:
    found = version.change_set
    return VersionHead(version=found.version, life_cycle=found.life_cycle, detected_at=found.detected_at)
