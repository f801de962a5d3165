"""The productData of a product, merged from its three sources."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mustit_pipeline.marketplace.fields import all_clean
from mustit_pipeline.marketplace.markup import image_sources

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


# What a product is without any source.
_BLANK: Document = dict.fromkeys(FIELDS) | {
    **dict.fromkeys(("name", "brandName", "brandNameKr", "description", "originCountry", "itemStatus"), ""),
    "category": dict.fromkeys(CATEGORY_LEVELS),
    "soldOut": False,
    "images": [],
    "tags": [],
    "descriptionImages": [],
    "shipping": EMPTY_SHIPPING,
    "options": [],
}


def merge(seller_id: str, item_no: int, previous: Document | None, old: Sources, new: Sources) -> dict[str, Any]:
    """The next productData: a source replaces a value only where its own value has changed."""
    blank = {**_BLANK, "itemNo": item_no, "sellerId": seller_id}
    data: dict[str, Any] = {**blank, **(previous or {})}
    current: list[Document] = []
    for fields_of, before, after in (
        (_from_listing, old.listing, new.listing),
        (_from_detail, old.detail, new.detail),
        (_from_options, old.options, new.options),
    ):
        fields = fields_of(after)
        current.append(fields)
        if before is after:
            continue
        earlier = fields_of(before)
        for field, value in fields.items():
            # Never seen and absent are the same: a detail without a price does not replace the listing's price.
            if earlier.get(field, blank[field]) != value:
                data[field] = value
    if previous is not None:
        _drop_stale_values(data, current, blank)
    banners: list[str] = (new.detail or {}).get("banners", {}).get("images", [])
    data["images"] = banners or (new.listing or {}).get("imageUrlList", [])
    return {field: data[field] for field in FIELDS}


def _drop_stale_values(data: dict[str, Any], sources: Sequence[Document], blank: Document) -> None:
    """Drop values that no source has: older rules derived them."""
    for field in FIELDS:
        values = [source[field] for source in sources if field in source]
        if values and data[field] not in values:
            data[field] = next((value for value in reversed(values) if value != blank[field]), blank[field])


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
            "descriptionImages": all_clean(list(image_sources(markup))),
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
