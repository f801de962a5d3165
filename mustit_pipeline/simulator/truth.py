"""The expected productData of a product, and the differences of two states."""

from typing import Any

from mustit_pipeline.simulator.catalogue import Level
from mustit_pipeline.simulator.product import Product

Data = dict[str, Any]

_TYPES = {
    "normalPrice": "PRICE",
    "sellingPrice": "PRICE",
    "discountPrice": "PRICE",
    "discountRate": "PRICE",
    "stock": "STOCK",
    "soldOut": "STOCK",
    "images": "IMAGE",
    "description": "DESCRIPTION",
    "descriptionImages": "DESCRIPTION",
}


def product_data(product: Product) -> Data:
    """The productData of the contract."""
    category, shipping = product.category, product.shipping
    return {
        "itemNo": product.item_no,
        "sellerId": product.seller_id,
        "name": product.name,
        "brandName": product.brand.name,
        "brandNameKr": product.brand.name_kr,
        "brandCode": product.brand.code,
        "category": {
            "header": _level(category.header),
            "large": _level(category.large),
            "medium": _level(category.medium),
            "small": _level(category.small),
        },
        "normalPrice": product.normal_price,
        "sellingPrice": product.selling_price,
        "discountPrice": product.discount_price,
        "discountRate": product.discount_rate,
        "stock": product.stock,
        "soldOut": product.sold_out,
        "images": list(product.images),
        "tags": sorted(product.tags),
        "description": product.description,
        "descriptionImages": list(product.description_images),
        "originCountry": product.origin_country,
        "itemStatus": product.item_status,
        "shipping": {
            "type": shipping.type,
            "fee": shipping.fee,
            "feeType": shipping.fee_type,
            "averageDelivery": shipping.average_delivery,
            "free": shipping.free,
        },
        "options": [
            {"optionNo": o.option_no, "color": o.color, "size": o.size, "stock": o.stock, "sizeGuide": o.size_guide}
            for o in sorted(product.options, key=lambda option: option.option_no)
        ],
    }


def changes_between(old: Data, new: Data) -> list[Data]:
    """Field by field, typed as the contract types them."""
    changes: list[Data] = []
    for field, before in old.items():
        after = new[field]
        if before == after:
            continue
        if field == "options":
            changes += _option_changes(before, after)
        elif field in ("category", "shipping"):
            changes += [
                _change("PRODUCT_INFO", f"{field}.{part}", before[part], after[part])
                for part in before
                if before[part] != after[part]
            ]
        else:
            changes.append(_change(_TYPES.get(field, "PRODUCT_INFO"), field, before, after))
    return changes


def _option_changes(old: list[Data], new: list[Data]) -> list[Data]:
    before = {option["optionNo"]: option for option in old}
    after = {option["optionNo"]: option for option in new}
    changes: list[Data] = []
    for number in sorted(before.keys() | after.keys()):
        name = f"options[{number}]"
        if number not in before or number not in after:
            changes.append(_change("OPTION", name, before.get(number), after.get(number)))
            continue
        for part, value in before[number].items():
            if value != after[number][part]:
                kind = "STOCK" if part == "stock" else "OPTION"
                changes.append(_change(kind, f"{name}.{part}", value, after[number][part]))
    return changes


def _change(kind: str, field: str, old: Any, new: Any) -> Data:
    return {"type": kind, "field": field, "old": old, "new": new}


def _level(level: Level | None) -> Data | None:
    return None if level is None else {"code": level.code, "name": level.name}
