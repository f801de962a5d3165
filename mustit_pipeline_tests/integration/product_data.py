"""The state of a product as the product server is told it."""

from typing import Any


def product_data(seller_id: str, item_no: int, **changed: Any) -> dict[str, Any]:
    """productData with a value in every field."""
    return {
        "itemNo": item_no,
        "sellerId": seller_id,
        "name": f"백팩 {item_no}\n새 상품",
        "brandName": "GUCCI",
        "brandNameKr": "구찌",
        "brandCode": 153,
        "category": {
            "header": {"code": "W", "name": "여성"},
            "large": {"code": "16", "name": "여성가방"},
            "medium": {"code": "16r05", "name": "백팩"},
            "small": None,
        },
        "normalPrice": 1083000,
        "sellingPrice": 621000,
        "discountPrice": 540000,
        "discountRate": 48,
        "stock": 3,
        "soldOut": False,
        "images": ["https://example.com/1.jpg", "https://example.com/2.jpg"],
        "tags": ["무료배송"],
        "description": "<p>설명</p>",
        "descriptionImages": [],
        "originCountry": "케냐",
        "itemStatus": "새상품",
        "shipping": {"type": "DOMESTIC", "fee": 0, "feeType": "FREE", "averageDelivery": "1일", "free": True},
        "options": [{"optionNo": 4134224619, "color": "", "size": "US 4", "stock": None, "sizeGuide": "≒ 36"}],
        **changed,
    }
