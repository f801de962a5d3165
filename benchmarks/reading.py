"""What Scrapy's pipeline and the limit version read from the three bodies: enough to notice every real change."""

import hashlib
from typing import Any
from unicodedata import normalize

import orjson

Document = dict[str, Any]

_LISTING = ("itemNo", "name", "brandName", "price", "originalPrice", "discountRate", "imageUrlList")
_INFO = (
    *("sellerId", "itemNo", "itemName", "brandName", "brandNameKr", "brandCode"),
    *("headerCategoryCode", "headerCategory", "largeCategoryCode", "largeCategory", "mediumCategoryCode"),
    *("mediumCategory", "smallCategoryCode", "smallCategory"),
    *("normalPrice", "sellingPrice", "discountPrice", "discountRate", "stock", "isSoldOut"),
)
_SHIPPING = ("shippingType", "shippingFee", "shippingFeeType")
_DETAIL = ("originCountry", "itemStatus", "shippingLocation", "salesMethod", "descriptionMarkUp")
_OPTION = ("optionNo", "color", "size", "stock", "sizeGuide")
_NUMBERS = frozenset(
    (
        *("price", "originalPrice", "normalPrice", "sellingPrice", "discountPrice", "discountRate"),
        *("stock", "brandCode", "shippingFee"),
    )
)


def product(listed: Document, detail: Document, options: list[Document]) -> Document:
    """One product out of its listing entry, its detail and its options."""
    modules: dict[str, Any] = {module["type"]: module.get("data") for module in detail["moduleList"]}
    shipping = modules["ShippingModule"]["items"][0]["data"]
    return {
        "listing": {**_picked(listed, _LISTING), "tags": sorted(tag["title"] for tag in listed["tagList"])},
        "info": _picked(modules["ProductInfoModule"], _INFO),
        "images": modules["ProductBannersModule"]["images"],
        "shipping": {**_picked(shipping, _SHIPPING), "average": _text(shipping["averageDeliveryDay"]["text"])},
        "detail": _picked(modules["ProductDetailInfoModule"], _DETAIL),
        "options": sorted((_picked(option, _OPTION) for option in options), key=lambda option: option["optionNo"]),
    }


def encoded(document: Document) -> tuple[bytes, str]:
    """The document as JSON, and the hash that tells whether it changed."""
    content = orjson.dumps(document, option=orjson.OPT_SORT_KEYS)
    return content, hashlib.md5(content, usedforsecurity=False).hexdigest()


def _picked(found: Document, names: tuple[str, ...]) -> Document:
    return {name: _number(found.get(name)) if name in _NUMBERS else _text(found.get(name)) for name in names}


def _number(value: Any) -> int | None:
    if isinstance(value, str):
        return int(value.replace(",", "").rstrip("%"))
    return value


def _text(value: Any) -> Any:
    if isinstance(value, str):
        return value if value.isascii() else normalize("NFC", value)
    # Null, missing and empty are spellings of the same.
    return "" if value is None else value
