"""One real change of a product, of a given type."""

from collections.abc import Callable
from random import Random
from typing import Any

from mustit_pipeline.simulator import catalogue
from mustit_pipeline.simulator.generation import discount_rate, image_url, money, next_option_no
from mustit_pipeline.simulator.product import Product
from mustit_pipeline.simulator.truth import product_data

Fields = dict[str, Any]


def changed_fields(product: Product, kind: str, rng: Random) -> Fields:
    """The productData fields, with their new values, of one change of that type and no other."""
    before = product_data(product)
    while True:
        fields = _CHANGES[kind](product, rng)
        if any(before[name] != value for name, value in fields.items()):
            return fields


def _price(product: Product, rng: Random) -> Fields:
    normal = max(product.normal_price, 10_000)
    if rng.random() < 0.25:
        return {"sellingPrice": money(normal * (0.5 + rng.random() * 0.45))}
    discount = money(normal * (0.4 + rng.random() * 0.5))
    return {"normalPrice": normal, "discountPrice": discount, "discountRate": discount_rate(normal, discount)}


def _stock(product: Product, rng: Random) -> Fields:
    if not product.options:
        stock = rng.randrange(8)
        return {"stock": stock, "soldOut": stock == 0}
    options = product_data(product)["options"]
    chosen = rng.choice(options)
    chosen["stock"] = 0 if chosen["stock"] and rng.random() < 0.5 else chosen["stock"] + 1 + rng.randrange(3)
    stock = sum(option["stock"] for option in options)
    return {"options": options, "stock": stock, "soldOut": stock == 0}


def _option(product: Product, rng: Random) -> Fields:
    """Only options without stock come and go, so that the product's stock stays as it is."""
    options = product_data(product)["options"]
    empty = [option for option in options if option["stock"] == 0]
    choice = rng.random()
    if choice < 0.3 and empty:
        options.remove(rng.choice(empty))
    elif choice < 0.7 and options:
        rng.choice(options).update({"size": f"EU {rng.randrange(34, 48)}", "sizeGuide": rng.choice(("", "크게 나옴"))})
    else:
        number, size = next_option_no(product), rng.choice(catalogue.SIZES)
        options.append({"optionNo": number, "color": "", "size": size, "stock": 0, "sizeGuide": ""})
    return {"options": options}


def _image(product: Product, rng: Random) -> Fields:
    images = list(product.images)
    choice = rng.random()
    if choice < 0.3 and len(images) > 1:
        images.append(images.pop(0))
    elif choice < 0.5 and len(images) > 1:
        images.pop()
    elif choice < 0.75 or not images:
        images.append(image_url(rng, product.seller_id))
    else:
        images[rng.randrange(len(images))] = image_url(rng, product.seller_id)
    return {"images": images}


def _description(product: Product, rng: Random) -> Fields:
    if rng.random() < 0.5:
        return {"description": f"{product.description}\n<p>추가 안내 {rng.getrandbits(32):08x}</p>"}
    source = f"https://shop.openhost.example/web/product/image/{rng.getrandbits(64):016x}.jpg"
    return {"description": f'{product.description}\n<p><img src="{source}"></p>'}


def _product_info(product: Product, rng: Random) -> Fields:
    field = rng.choice(("name", "originCountry", "itemStatus", "tags", "shipping", "category"))
    if field == "name":
        return {
            "name": f"{product.name.split(' [')[0]} [{rng.choice(('특가', '재입고', '한정'))} {rng.randrange(100)}]"
        }
    if field == "originCountry":
        return {"originCountry": rng.choice(catalogue.COUNTRIES)}
    if field == "itemStatus":
        return {"itemStatus": rng.choice(catalogue.STATUSES)}
    if field == "tags":
        return {"tags": sorted(rng.sample(catalogue.TAGS, rng.randrange(1, 5)))}
    shipping, category = product_data(product)["shipping"], product_data(product)["category"]
    if field == "shipping":
        fee = rng.choice((0, 2500, 3000, 15000))
        return {"shipping": {**shipping, "fee": fee, "feeType": "PAID" if fee else "FREE", "free": fee == 0}}
    small = None if category["small"] else {"code": f"{category['medium']['code']}r09", "name": "기타"}
    return {"category": {**category, "small": small}}


_CHANGES: dict[str, Callable[[Product, Random], Fields]] = {
    "PRICE": _price,
    "STOCK": _stock,
    "OPTION": _option,
    "IMAGE": _image,
    "DESCRIPTION": _description,
    "PRODUCT_INFO": _product_info,
}

KINDS = tuple(_CHANGES)
