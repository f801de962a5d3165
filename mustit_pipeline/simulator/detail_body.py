"""The detail call's answer: the modules that say something about the product."""

from typing import Any
from urllib.parse import quote

import orjson

from mustit_pipeline.simulator import detail_frame as frame
from mustit_pipeline.simulator.noise import Noise
from mustit_pipeline.simulator.product import Product

_OTHER_SHOPS = ("dinapino2014", "luxboutique", "milano_select", "gangnam_lux")


def detail_body(product: Product, noise: Noise, seller_id: str) -> bytes:
    """The product's page; `seller_id` is whose product it claims to be."""
    number, filed = product.item_no, product.category
    path = f"headerCategory={filed.header.code}&largeCategory={filed.large.code}&mediumCategory={filed.medium.code}"
    modules = b",".join(
        (
            _module("ProductBannersModule", {"images": product.banner_images, "timesales": []}),
            _module("ProductInfoModule", noise.keys(_info(product, noise, seller_id))),
            frame.login_banner(number),
            frame.MARGIN,
            _module("PurchaseBenefitModule", _benefits(product)),
            _module("ShippingModule", _shipping(product, noise)),
            frame.MARGIN,
            frame.seller_module(product.seller_no, noise.call),
            _module("CatalogModule", _catalog(product, seller_id)),
            frame.PROMOTIONS,
            frame.WIDE_MARGIN,
            frame.recommendations(number, path),
            frame.MARGIN,
            frame.SINGLE_PROMOTION,
            frame.MARGIN,
            frame.tabs(noise.call % 7),
            _module("ProductDetailInfoModule", noise.keys(_detail_info(product))),
            frame.MARGIN,
        )
    )
    liked = b"true" if noise.turn(3, 1) else b"false"
    bottom = (
        b'"bottom":{"freeGift":"","likeCount":%d,"isLike":%b,"hasLowestOtherProduct":false},'
        b'"nextApiUrl":"/v1/item/%d/detail/bottom?sellerId=%b&catalogNo=%d"'
        % (noise.call, liked, number, quote(seller_id, safe="").encode(), _catalog_no(product))
    )
    if noise.turn(3, 2):
        return b'{%b,"moduleList":[%b]}' % (bottom, modules)
    return b'{"moduleList":[%b],%b}' % (modules, bottom)


def _module(kind: str, data: dict[str, Any]) -> bytes:
    return orjson.dumps({"type": kind, "data": data})


def _catalog_no(product: Product) -> int:
    return product.item_no - 7_417_237


def _info(product: Product, noise: Noise, seller_id: str) -> dict[str, Any]:
    category, number, text = product.category, noise.number, noise.text
    normal, selling, discount = product.normal_price, product.selling_price, product.discount_price
    info: dict[str, Any] = {
        "sellerNo": product.seller_no,
        "sellerId": seller_id,
        "itemNo": product.item_no,
        "itemName": text(product.name),
        "brandName": product.brand.name,
        "brandNameKr": text(product.brand.name_kr),
        "brandCode": number(product.brand.code),
        "headerCategoryCode": category.header.code,
        "headerCategory": text(category.header.name),
        "largeCategoryCode": category.large.code,
        "largeCategory": text(category.large.name),
        "mediumCategoryCode": category.medium.code,
        "mediumCategory": text(category.medium.name),
        "normalPrice": number(normal),
        "discountRate": noise.rate(product.discount_rate),
        "sellingPrice": number(selling),
        "discountPrice": number(discount),
        "isBoutiqueItem": False,
        "isSoldOut": product.sold_out,
        "stock": number(product.stock),
        "userDiscountInfo": {"dpsDiscount": False, "purchasePrice": discount, "isLike": noise.turn(3, 1)},
        "badgeList": [],
        "discountDetails": {
            "prices": [
                {"type": "NORMAL", "name": "정상가", "price": normal},
                {"type": "DISCOUNT_PRICE", "name": "할인가", "price": selling},
            ],
            "discounts": [
                {"type": "ACCOUNT", "name": "회원할인", "price": selling - discount, "isAccountGroup": False},
                {"type": "DPS_DISCOUNT", "name": "스페셜 쿠폰", "price": selling - discount, "isAccountGroup": True},
            ],
            "total": {"type": "ACCOUNT", "name": "최대혜택가", "price": discount},
        },
        "catalogId": _catalog_no(product),
        "countPriceComparison": 1 + len(_OTHER_SHOPS),
        "isPriceComparison": True,
        "isLowestPrice": True,
    }
    if category.small is not None:
        info["smallCategoryCode"], info["smallCategory"] = category.small.code, text(category.small.name)
    elif noise.turn(6, 2):
        info["smallCategoryCode"] = info["smallCategory"] = None
    elif noise.turn(6, 5):
        info["smallCategoryCode"] = info["smallCategory"] = ""
    return info


def _benefits(product: Product) -> dict[str, Any]:
    return {
        "title": "혜택안내",
        "items": [
            {"type": "REWARD", "data": {"point": 3000}},
            {"type": "INTEREST_FREE", "data": {"interestMaxMonth": 6, "Installment": product.discount_price // 6}},
            {"type": "AS", "data": {"isAfterService": True}},
        ],
    }


def _shipping(product: Product, noise: Noise) -> dict[str, Any]:
    shipping = product.shipping
    data = {
        "shippingType": shipping.type,
        "shippingFee": noise.number(shipping.fee),
        "shippingFeeType": shipping.fee_type,
        "isEachShippingFee": False,
        "isDirectShipping": False,
        "isCustomsDuty": False,
        "averageDeliveryDay": {
            "text": noise.text(shipping.average_delivery),
            "focusText": shipping.average_delivery.removeprefix("평균 배송 "),
        },
    }
    return {"title": "배송정보", "items": [{"type": "SHIPPING", "data": noise.keys(data)}]}


def _catalog(product: Product, seller_id: str) -> dict[str, Any]:
    shared = {"isSelectedFreeShipping": False, "isRegisteredLowestAlarm": False, "catalogNo": _catalog_no(product)}
    own = _compared(product, product.item_no, seller_id, product.discount_price, own=True)
    others = [
        _compared(product, product.item_no - 742_113 * n, shop, product.discount_price + 27_900 * n, own=False)
        for n, shop in enumerate(_OTHER_SHOPS, 1)
    ]
    new = {"title": "가격비교", "count": 1 + len(others), **shared, "items": [own, *others], "landingUrl": ""}
    return {"NEW": new, "USED": {"title": "가격비교", "count": 0, **shared, "items": [], "landingUrl": ""}}


def _compared(product: Product, item_no: int, shop: str, price: int, *, own: bool) -> dict[str, Any]:
    category, brand = product.category, product.brand
    return {
        "itemNo": item_no,
        "sellerId": shop,
        "isLowestPrice": own,
        "sellPrice": str(price),
        "sellPriceWeb": str(price),
        "usedStatus": "",
        "shippingType": "국내배송",
        "shippingFee": "무료",
        "isTariff": False,
        "tagList": [],
        "sellerBadgeUrl": frame.BADGE if own else "",
        "isFocusItem": own,
        "amplitudeInfo": {
            "eventType": "click_price_comparison_product",
            "parameters": {
                "brand_id": brand.code,
                "brand_name": brand.name,
                "category_1_id": category.large.code,
                "category_1_name": category.header.name + category.large.name,
                "category_2_id": category.medium.code,
                "category_2_name": category.medium.name,
                "category_3_id": category.small.code if category.small else "",
                "product_id": item_no,
                "product_name": product.name,
                "discount_price": price,
                "discount_rate": product.discount_rate,
                "is_lowest_price": own,
            },
        },
    }


def _detail_info(product: Product) -> dict[str, Any]:
    info: dict[str, Any] = {
        "title": "상세정보",
        "itemNo": product.item_no,
        "itemStatus": product.item_status,
        "originCountry": product.origin_country,
        "shippingLocation": product.shipping_location,
        "sellerEvaluations": [],
        "warningTextSellerStatus": [],
        "descriptionMarkUp": product.description,
    }
    if product.sales_method is not None:
        info["salesMethod"] = product.sales_method
    return info
