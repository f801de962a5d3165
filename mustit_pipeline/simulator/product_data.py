"""The shape of the contract's productData: checked for events, and read back into the model for changes."""

from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any, TypeGuard, cast

from mustit_pipeline.simulator.catalogue import Brand, CategoryPath, Level
from mustit_pipeline.simulator.product import Option, Product, Shipping
from mustit_pipeline.simulator.truth import product_data

Check = Callable[[Any], bool]

FIXED = frozenset({"itemNo", "sellerId", "descriptionImages"})


class ProductDataError(ValueError):
    """Something is not productData; the message says which field and why."""


def is_number(value: Any) -> bool:
    """A JSON integer; true and false are not numbers."""
    return isinstance(value, int) and not isinstance(value, bool)


def _number_or_null(value: Any) -> bool:
    return value is None or is_number(value)


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(entry, str) for entry in cast("list[Any]", value))


def _object(parts: dict[str, Check]) -> Check:
    def check(value: Any) -> bool:
        return (
            isinstance(value, dict) and value.keys() == parts.keys() and all(parts[name](value[name]) for name in parts)
        )

    return check


_LEVEL = _object({"code": _text, "name": _text})
_OPTION = _object(
    {"optionNo": is_number, "color": _text, "size": _text, "stock": _number_or_null, "sizeGuide": _text},
)


def _level_or_null(value: Any) -> bool:
    return value is None or _LEVEL(value)


def _options(value: Any) -> bool:
    if not _is_list_of_options(value):
        return False
    numbers = [option["optionNo"] for option in value]
    return numbers == sorted(set(numbers))


def _is_list_of_options(value: Any) -> TypeGuard[list[dict[str, Any]]]:
    return isinstance(value, list) and all(map(_OPTION, cast("list[Any]", value)))


_FIELDS: dict[str, Check] = {
    "itemNo": is_number,
    "sellerId": _text,
    "name": _text,
    "brandName": _text,
    "brandNameKr": _text,
    "brandCode": _number_or_null,
    "category": _object(dict.fromkeys(("header", "large", "medium", "small"), _level_or_null)),
    "normalPrice": _number_or_null,
    "sellingPrice": _number_or_null,
    "discountPrice": _number_or_null,
    "discountRate": _number_or_null,
    "stock": _number_or_null,
    "soldOut": _flag,
    "images": _texts,
    "tags": _texts,
    "description": _text,
    "descriptionImages": _texts,
    "originCountry": _text,
    "itemStatus": _text,
    "shipping": _object(
        {"type": _text, "fee": _number_or_null, "feeType": _text, "averageDelivery": _text, "free": _flag}
    ),
    "options": _options,
}


def check_product_data(data: Any) -> None:
    """Raise unless it is exactly what the contract describes: no field more, none less, each of its type."""
    if not isinstance(data, dict):
        raise ProductDataError("productData must be an object")
    given = cast("dict[str, Any]", data)
    if missing := _FIELDS.keys() - given.keys():
        raise ProductDataError(f"productData lacks {', '.join(sorted(missing))}")
    if unknown := given.keys() - _FIELDS.keys():
        raise ProductDataError(f"productData has unknown {', '.join(sorted(unknown))}")
    for name, check in _FIELDS.items():
        if not check(given[name]):
            raise ProductDataError(f"productData.{name} is not of the contract's shape: {given[name]!r:.200}")


def with_fields(product: Product, fields: dict[str, Any]) -> Product:
    """The product with some productData fields replaced; category and shipping may be given in part."""
    if refused := fields.keys() & FIXED:
        raise ProductDataError(f"{', '.join(sorted(refused))} cannot be set")
    data = product_data(product)
    for name, value in fields.items():
        if name in ("category", "shipping") and isinstance(value, dict):
            data[name] = {**data[name], **value}
        else:
            data[name] = value
    if _is_list_of_options(options := data["options"]):
        data["options"] = sorted(options, key=lambda option: option["optionNo"])
    check_product_data(data)
    _check_amounts(data)
    return _from_data(product, data, fields)


def _check_amounts(data: dict[str, Any]) -> None:
    """A product on sale has every number and its upper categories, though an event may lack them."""
    amounts = {name: data[name] for name, check in _FIELDS.items() if check is _number_or_null}
    amounts["shipping.fee"] = data["shipping"]["fee"]
    amounts |= {f"options[{option['optionNo']}].stock": option["stock"] for option in data["options"]}
    for name, value in amounts.items():
        if value is None or value < 0:
            raise ProductDataError(f"{name} must be 0 or more, not {value!r}")
    for level in ("header", "large", "medium"):
        if data["category"][level] is None:
            raise ProductDataError(f"category.{level} must be given")
    if not data["name"].strip():
        raise ProductDataError("name must not be blank")
    if len(set(data["tags"])) < len(data["tags"]):
        raise ProductDataError("tags must not repeat")


def _from_data(product: Product, data: dict[str, Any], fields: dict[str, Any]) -> Product:
    shipping, category = data["shipping"], data["category"]
    return replace(
        product,
        name=data["name"],
        brand=Brand(data["brandCode"], data["brandName"], data["brandNameKr"]),
        category=CategoryPath(
            Level(**category["header"]),
            Level(**category["large"]),
            Level(**category["medium"]),
            Level(**category["small"]) if category["small"] else None,
        ),
        normal_price=data["normalPrice"],
        selling_price=data["sellingPrice"],
        discount_price=data["discountPrice"],
        discount_rate=data["discountRate"],
        stock=data["stock"],
        sold_out=data["soldOut"],
        images=tuple(data["images"]),
        tags=tuple(fields.get("tags", product.tags)),
        description=data["description"],
        description_images=(
            image_sources(data["description"]) if "description" in fields else product.description_images
        ),
        origin_country=data["originCountry"],
        item_status=data["itemStatus"],
        shipping=Shipping(shipping["type"], shipping["fee"], shipping["feeType"], shipping["averageDelivery"]),
        options=tuple(
            Option(o["optionNo"], o["color"], o["size"], o["stock"], o["sizeGuide"]) for o in data["options"]
        ),
    )


class _Images(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.sources: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        source = dict(attrs).get("src")
        if tag == "img" and source:
            self.sources.append(source)


def image_sources(html: str) -> tuple[str, ...]:
    """The pictures of a description, in order."""
    parser = _Images()
    parser.feed(html)
    parser.close()
    return tuple(parser.sources)
