"""The productData of a product, merged from its three sources."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mustit_pipeline.marketplace.markup import description_images

Document = Mapping[str, Any]

EMPTY_SHIPPING: Document = {"type": "", "fee": None, "feeType": "", "averageDelivery": "", "free": False}
CATEGORY_LEVELS = ("header", "large", "medium", "small")
FIELDS = (
    "itemNo",
    "sellerId",
    "name",
    "brandName",
    "brandNameKr",
    "brandCode",
    "category",
    "normalPrice",
    "sellingPrice",
    "discountPrice",
    "discountRate",
    "stock",
    "soldOut",
    "images",
    "tags",
    "description",
    "descriptionImages",
    "originCountry",
    "itemStatus",
    "shipping",
    "options",
)


@dataclass(frozen=True, slots=True)
class Sources:
    """The last listing, detail and options data in canonical form; None where never seen."""

    listing: Document | None = None
    detail: Document | None = None
    options: Document | None = None


def merge(seller_id: str, item_no: int, previous: Document | None, old: Sources, new: Sources) -> dict[str, Any]:
    """The next productData: a source replaces a value only where its own value has changed."""
    blank = _blank(seller_id, item_no)
    data: dict[str, Any] = {**blank, **(previous or {})}
    current = _fields_by_source(new)
    for before, after in zip(_fields_by_source(old), current, strict=True):
        for field, value in after.items():
            # Never seen and absent are the same: a detail without a price does not replace the listing's price.
            if before.get(field, blank[field]) != value:
                data[field] = value
    if previous is not None:
        _drop_stale_values(data, current, blank)
    data["images"] = _images(new)
    return {field: data[field] for field in FIELDS}


def _drop_stale_values(data: dict[str, Any], sources: Sequence[Document], blank: Document) -> None:
    """Drop values that no source has: older rules derived them."""
    for field in FIELDS:
        values = [source[field] for source in sources if field in source]
        if values and data[field] not in values:
            data[field] = next((value for value in reversed(values) if value != blank[field]), blank[field])


def _blank(seller_id: str, item_no: int) -> dict[str, Any]:
    blank = dict.fromkeys(FIELDS)
    blank |= dict.fromkeys(("name", "brandName", "brandNameKr", "description", "originCountry", "itemStatus"), "")
    return blank | {
        "itemNo": item_no,
        "sellerId": seller_id,
        "category": dict.fromkeys(CATEGORY_LEVELS),
        "soldOut": False,
        "images": [],
        "tags": [],
        "descriptionImages": [],
        "shipping": dict(EMPTY_SHIPPING),
        "options": [],
    }


def _fields_by_source(sources: Sources) -> tuple[Document, Document, Document]:
    """Each source's data, as fields of the product."""
    return _from_listing(sources.listing), _from_detail(sources.detail), _from_options(sources.options)


def _from_listing(listing: Document | None) -> Document:
    if listing is None:
        return {}
    return {
        "name": listing.get("name", ""),
        "normalPrice": listing.get("originalPrice"),
        "discountPrice": listing.get("price"),
        "tags": listing.get("tagList", []),
    }


def _from_detail(detail: Document | None) -> Document:
    if detail is None:
        return {}
    info: Document = detail["info"]
    fields: dict[str, Any] = {
        "name": info.get("itemName", ""),
        "brandName": info.get("brandName", ""),
        "brandNameKr": info.get("brandNameKr", ""),
        "brandCode": info.get("brandCode"),
        "category": {level: info.get(f"{level}Category") for level in CATEGORY_LEVELS},
        "normalPrice": info.get("normalPrice"),
        "sellingPrice": info.get("sellingPrice"),
        "discountPrice": info.get("discountPrice"),
        "discountRate": info.get("discountRate"),
        "stock": info.get("stock"),
        "soldOut": info.get("isSoldOut", False),
    }
    if "shipping" in detail:
        fields["shipping"] = {**EMPTY_SHIPPING, **detail["shipping"]}
    if "detailInfo" in detail:
        text: Document = detail["detailInfo"]
        markup: str = text.get("descriptionMarkUp", "")
        fields |= {
            "description": markup,
            "descriptionImages": description_images(markup),
            "originCountry": text.get("originCountry", ""),
            "itemStatus": text.get("itemStatus", ""),
        }
    return fields


def _from_options(options: Document | None) -> Document:
    if options is None:
        return {}
    return {
        "options": [
            {
                "optionNo": option["optionNo"],
                "color": option.get("color", ""),
                "size": option.get("size", ""),
                "stock": option.get("stock"),
                "sizeGuide": option.get("sizeGuide", ""),
            }
            for option in options["options"]
        ]
    }


def _images(sources: Sources) -> list[str]:
    banners: list[str] = (sources.detail or {}).get("banners", {}).get("images", [])
    return banners or (sources.listing or {}).get("imageUrlList", [])
