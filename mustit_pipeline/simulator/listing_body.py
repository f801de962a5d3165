"""The listing call's answer."""

from collections.abc import Sequence
from typing import Any

import orjson

from mustit_pipeline.simulator.groups import group_result
from mustit_pipeline.simulator.noise import Noise
from mustit_pipeline.simulator.product import Product

_LIKED = "https://static-ux.mustit.co.kr/img/m/m_icon/icon_zzim_on.png"
_DETAIL_PAGE = "https://m.web.mustit.co.kr/v2/m/product/product_detail/"


def listing_body(count: int, products: Sequence[Product], noise: Noise) -> bytes:
    """One page of a seller's products."""
    items = orjson.dumps([_item(product, noise, place) for place, product in enumerate(products)])
    index = b"b" if noise.turn(2, 1) else b"a"
    head = b'"count":%d,"indexName":"item-idx-%b","groupResult":%b' % (count, index, group_result(count))
    if noise.turn(3, 2):
        return b'{"items":%b,%b}' % (items, head)
    return b'{%b,"items":%b}' % (head, items)


def _item(product: Product, noise: Noise, place: int) -> dict[str, Any]:
    price, normal = f"{product.discount_price:,}", f"{product.normal_price:,}"
    rate = f"{product.discount_rate}%" if noise.turn(3, 1, place) else str(product.discount_rate)
    liked = noise.turn(5, 0, place)
    return noise.keys(
        {
            "itemNo": product.item_no,
            "imageUrlList": product.listing_images,
            "brandName": product.brand.name,
            "landingUrl": f"{_DETAIL_PAGE}{product.item_no}",
            "name": noise.text(product.name, place),
            "price": price,
            "tagList": noise.order([_TAGS.get(title) or _tag(title) for title in product.tags]),
            "originalPrice": normal,
            "normalPrice": normal,
            "discountRate": rate,
            "likeStatus": liked,
            "appDiscountRate": rate,
            "appPrice": price,
            "likeImageUrl": _LIKED if liked else "",
            "webSpacingInfo": "even" if (noise.call + place) % 2 else "odd",
        },
        place,
    )


_TAGS: dict[str, orjson.Fragment] = {}


def _tag(title: str) -> orjson.Fragment:
    """Tags are few and their bytes the same each time."""
    entry = {"title": title, "textColor": "#888888", "bgColor": "#ffffff", "borderColor": "#dddddd"}
    _TAGS[title] = fragment = orjson.Fragment(orjson.dumps(entry))
    return fragment
