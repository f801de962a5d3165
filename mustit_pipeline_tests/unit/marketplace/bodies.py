"""Valid marketplace bodies as plain data, to be changed by a test before they are encoded."""

from typing import Any

import orjson

ITEM_NO = 118005032


def listing_item(**changes: Any) -> dict[str, Any]:
    return {
        "itemNo": ITEM_NO,
        "name": "여성 백팩",
        "brandName": "Vivienne Westwood",
        "price": "545,600",
        "originalPrice": "1,075,000",
        "normalPrice": "1,075,000",
        "discountRate": "49",
        "appPrice": "540,000",
        "appDiscountRate": "50%",
        "imageUrlList": ["https://image.example/1.jpeg", "https://image.example/2.jpeg"],
        "tagList": [{"title": "무료배송", "textColor": "#888888", "bgColor": "#ffffff", "borderColor": "#dddddd"}],
        "landingUrl": "https://m.example/product/118005032",
        "likeStatus": False,
    } | changes


def listing(*items: Any, **changes: Any) -> dict[str, Any]:
    return {"count": 3464, "indexName": "item-idx-a", "groupResult": {}, "items": list(items)} | changes


def info(**changes: Any) -> dict[str, Any]:
    return {
        "sellerNo": 678,
        "sellerId": "dmont",
        "itemNo": ITEM_NO,
        "itemName": "여성 백팩",
        "brandName": "Vivienne Westwood",
        "brandNameKr": "비비안웨스트우드",
        "brandCode": 153,
        "headerCategoryCode": "W",
        "headerCategory": "여성",
        "largeCategoryCode": "16",
        "largeCategory": "가방",
        "mediumCategoryCode": "16r05",
        "mediumCategory": "백팩",
        "normalPrice": 1083000,
        "sellingPrice": 621000,
        "discountPrice": 565100,
        "discountRate": 48,
        "stock": 3,
        "isSoldOut": False,
    } | changes


def shipping(**changes: Any) -> dict[str, Any]:
    data = {
        "shippingType": "DOMESTIC",
        "shippingFee": 3000,
        "shippingFeeType": "PAID",
        "averageDeliveryDay": {"text": "평균 배송 1일 소요", "focusText": "1일 소요"},
    }
    return {"title": "배송정보", "items": [{"type": "SHIPPING", "data": data | changes}]}


def detail_info(**changes: Any) -> dict[str, Any]:
    return {
        "originCountry": "케냐",
        "itemStatus": "새상품",
        "shippingLocation": "대구 중구",
        "salesMethod": "일반판매",
        "descriptionMarkUp": '<p><img src="https://image.example/d1.jpg"></p>',
    } | changes


def detail(**modules: Any) -> dict[str, Any]:
    """A detail body; a module given as None is left out."""
    data = {
        "ProductBannersModule": {"images": ["https://image.example/b1.jpeg"]},
        "ProductInfoModule": info(),
        "ShippingModule": shipping(),
        "TabListModule": [{"title": "상세정보"}],
        "ProductDetailInfoModule": detail_info(),
    } | modules
    listed = [{"type": kind, "data": content} for kind, content in data.items() if content is not None]
    return {"moduleList": listed, "bottom": {"likeCount": 0}, "nextApiUrl": "/v1/item/118005032/detail/bottom"}


def option(**changes: Any) -> dict[str, Any]:
    return {
        "optionNo": 4134224619,
        "itemNo": ITEM_NO,
        "color": "블랙",
        "size": "US 4",
        "shippingType": "NONE",
        "stock": 1,
        "sizeGuide": "정사이즈",
    } | changes


def encoded(body: Any) -> bytes:
    return orjson.dumps(body)
