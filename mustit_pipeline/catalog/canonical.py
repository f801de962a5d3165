"""The one text of a source's data: allow-listed fields, sorted keys, no empty values, no spaces; and its hash."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from mustit_pipeline.catalog.product_data import Document
from mustit_pipeline.marketplace.models import (
    BANNERS,
    DETAIL_INFO,
    SHIPPING,
    ListingEntry,
    ProductDetail,
    ProductOption,
)

# Raised whenever the same body gets another canonical form: hashes of different readings cannot be compared.
READING = 1

# hashlib lets other threads run for the time of a longer piece: getting the turn back takes longer than the hash.
_PIECE = 2047
# If a source no longer sends one of these, its earlier value is kept.
_LISTED_PRICES = ("price", "originalPrice", "normalPrice")
_DETAIL_PRICES = ("normalPrice", "sellingPrice", "discountPrice")


def _filled(**fields: object) -> dict[str, Any]:
    """Null, missing and empty values are the same and are dropped; 0 and False are kept."""
    return {name: value for name, value in fields.items() if value or value == 0}


def listing_json(entry: ListingEntry, previous: Document | None = None) -> bytes:
    """A listing entry without its volatile fields; tags are sorted, and an absent price keeps its earlier value."""
    earlier = {name: previous[name] for name in _LISTED_PRICES if name in previous} if previous else {}
    document = earlier | _filled(
        itemNo=entry.item_no,
        name=entry.name,
        brandName=entry.brand_name,
        price=entry.price,
        originalPrice=entry.original_price,
        normalPrice=entry.normal_price,
        discountRate=entry.discount_rate,
        appPrice=entry.app_price,
        appDiscountRate=entry.app_discount_rate,
        imageUrlList=list(entry.image_urls),
        tagList=sorted(entry.tags),
        landingUrl=entry.landing_url,
    )
    return orjson.dumps(document, option=orjson.OPT_SORT_KEYS)


def detail_json(detail: ProductDetail, previous: Document | None) -> bytes:
    """A detail by module; an absent module or price keeps its earlier value."""
    known: Document = previous["info"] if previous else {}
    categories = {
        "headerCategory": detail.header_category,
        "largeCategory": detail.large_category,
        "mediumCategory": detail.medium_category,
        "smallCategory": detail.small_category,
    }
    document: dict[str, Any] = {
        "info": {name: known[name] for name in _DETAIL_PRICES if name in known}
        | {name: {"code": one.code, "name": one.name} for name, one in categories.items() if one is not None}
        | _filled(
            sellerNo=detail.seller_no,
            sellerId=detail.seller_id,
            itemNo=detail.item_no,
            itemName=detail.item_name,
            brandName=detail.brand_name,
            brandNameKr=detail.brand_name_kr,
            brandCode=detail.brand_code,
            normalPrice=detail.normal_price,
            sellingPrice=detail.selling_price,
            discountPrice=detail.discount_price,
            discountRate=detail.discount_rate,
            stock=detail.stock,
            isSoldOut=detail.is_sold_out,
        )
    }
    if BANNERS in detail.modules:
        document["banners"] = _filled(images=list(detail.banner_images))
    if SHIPPING in detail.modules and detail.shipping is not None:
        document["shipping"] = _filled(
            type=detail.shipping.type,
            fee=detail.shipping.fee,
            feeType=detail.shipping.fee_type,
            averageDelivery=detail.shipping.average_delivery,
            free=detail.shipping.free,
        )
    if DETAIL_INFO in detail.modules:
        document["detailInfo"] = _filled(
            originCountry=detail.origin_country,
            itemStatus=detail.item_status,
            shippingLocation=detail.shipping_location,
            salesMethod=detail.sales_method,
            descriptionMarkUp=detail.description_markup,
        )
    return orjson.dumps({**(previous or {}), **document}, option=orjson.OPT_SORT_KEYS)


def whole_json(source: ListingEntry | ProductDetail, previous: Document) -> bytes:
    """A partial statement, completed with the source's earlier values."""
    return listing_json(source, previous) if isinstance(source, ListingEntry) else detail_json(source, previous)


def options_json(options: Iterable[ProductOption]) -> bytes:
    """The options by number; an empty list is valid."""
    listed = [
        _filled(
            optionNo=option.option_no,
            color=option.color,
            size=option.size,
            stock=option.stock,
            sizeGuide=option.size_guide,
            shippingType=option.shipping_type,
        )
        for option in sorted(options, key=lambda option: option.option_no)
    ]
    return orjson.dumps({"options": listed}, option=orjson.OPT_SORT_KEYS)


def content_hash(canonical: bytes) -> str:
    """The hash by which changes are found; not for security."""
    digest = hashlib.md5(usedforsecurity=False)
    for start in range(0, len(canonical), _PIECE):
        digest.update(canonical[start : start + _PIECE])
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Content:
    """A body's canonical content; without the text where it is partial or already known."""

    text: str | None
    hash: str
    whole: bool = True
    # Of a detail that says it.
    sold_out: bool | None = None


def content_of(source: ProductDetail | Iterable[ProductOption], known_hash: str | None = None) -> Content:
    """The content of a detail or of options; a partial detail has no text, because earlier values complete it.

    Content with the known hash has no text either: the catalog has it already.
    """
    sold_out: bool | None = None
    if isinstance(source, ProductDetail):
        encoded, whole = detail_json(source, None), source.is_whole
        sold_out = source.is_sold_out
    else:
        encoded, whole = options_json(source), True
    found = content_hash(encoded)
    return Content(encoded.decode() if whole and found != known_hash else None, found, whole, sold_out)


def listing_content(entries: Iterable[ListingEntry]) -> str | None:
    """The contents of a page's entries, one to a line; None where an entry says only a part."""
    lines: list[str] = []
    for entry in entries:
        if not entry.is_whole:
            return None
        lines.append(listing_json(entry).decode())
    return "\n".join(lines)


def listing_lines(content: str) -> Iterator[tuple[int, bytes]]:
    """The item and the content of each entry."""
    for line in content.encode().splitlines():
        yield orjson.loads(line)["itemNo"], line
