"""Any version of a product, and any two of them compared."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import Connection

from mustit_pipeline.catalog.diff import FieldChange, diff
from mustit_pipeline.catalog.sql import history
from mustit_pipeline.catalog.sql.history import KnownProduct, Version
from mustit_pipeline.domain.errors import Conflict, NotFound
from mustit_pipeline.domain.values import ItemNo, SellerId
from mustit_pipeline.sellers.sql import sellers


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two versions and every field in which they differ; a deletion has no fields."""

    product: KnownProduct
    old: Version
    new: Version
    changes: list[FieldChange]


def find_product(connection: Connection, item_no: ItemNo, seller_id: SellerId | None) -> KnownProduct:
    """The product with this number; if several sellers have it, the caller has to name the seller."""
    if seller_id is not None:
        sellers.get(connection, seller_id)
    found = history.products(connection, item_no, seller_id)
    if len(found) > 1:
        whose = ", ".join(product.seller_id for product in found)
        raise Conflict(
            "CONFLICT_PRODUCT_AMBIGUOUS",
            korean=f"상품 {item_no}은(는) 여러 셀러에 있습니다 ({whose}): 셀러를 지정하세요 (--seller, sellerId)",
            english=f"More than one seller has an item {item_no} ({whose}): name the seller (--seller, sellerId)",
        )
    if not found:
        of = "" if seller_id is None else f" of {seller_id}"
        raise NotFound(
            "NOT_FOUND_PRODUCT",
            korean=f"상품을 찾을 수 없습니다: {item_no}",
            english=f"There is no product {item_no}{of}: no listing has shown it",
        )
    return found[0]


def find_version(connection: Connection, product: KnownProduct, number: int) -> Version:
    """One version of a product."""
    found = history.version(connection, product.seller_id, product.item_no, number)
    if found is None:
        there_are = f"the newest is {product.version}" if product.version else "it has not been published yet"
        raise NotFound(
            "NOT_FOUND_VERSION",
            korean=f"상품 {product.item_no}에는 버전 {number}이(가) 없습니다 (최신 버전: {product.version})",
            english=f"Product {product.item_no} has no version {number}: {there_are}",
        )
    return found


def compare(connection: Connection, product: KnownProduct, old: int, new: int) -> Comparison:
    """The differences from one version to another, older or newer."""
    before, after = find_version(connection, product, old), find_version(connection, product, new)
    return Comparison(product, before, after, diff(state(before.data), state(after.data)))


def state(data: str | None) -> Mapping[str, Any]:
    """A stored state as fields."""
    return {} if data is None else orjson.loads(data)
