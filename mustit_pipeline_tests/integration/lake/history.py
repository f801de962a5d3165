"""Products with a history, put straight into the tables."""

from datetime import date, datetime
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import orjson
from sqlalchemy import text

from mustit_pipeline.foundation.database import Database

EXECUTION = UUID(int=7)
DAY = date(2026, 11, 14)

_VERSION = text("""
    INSERT INTO product_change_sets (seller_id, item_no, version, life_cycle, change_types, changes, product_data,
                                     execution_id, detected_at)
    VALUES (:seller_id, :item_no, :version, :life_cycle, '{}', CAST(:changes AS jsonb), :data, :execution_id, :at)
""")
_PRODUCT = text("""
    INSERT INTO products (seller_id, item_no, version, deleted_at) VALUES (:seller_id, :item_no, :version, :deleted_at)
    ON CONFLICT (seller_id, item_no) DO UPDATE SET version = excluded.version, deleted_at = excluded.deleted_at
""")


def in_seoul(day: date, clock: str) -> datetime:
    """A moment of a day in Seoul."""
    return datetime.fromisoformat(f"{day}T{clock}").replace(tzinfo=ZoneInfo("Asia/Seoul"))


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


def publish(
    database: Database,
    seller_id: str,
    item_no: int,
    version: int,
    at: datetime,
    life_cycle: str = "UPDATED",
    changes: list[dict[str, Any]] | None = None,
    **fields: Any,
) -> None:
    """One more version of a product, of a seller that is registered."""
    deleted = life_cycle == "DELETED"
    data = None if deleted else orjson.dumps(product_data(seller_id, item_no, **fields)).decode()
    product = {"seller_id": seller_id, "item_no": item_no, "version": version}
    with database.transaction() as connection:
        connection.execute(_PRODUCT, {**product, "deleted_at": at if deleted else None})
        connection.execute(
            _VERSION,
            {
                **product,
                "life_cycle": life_cycle,
                "changes": orjson.dumps(changes or []).decode(),
                "data": data,
                "execution_id": EXECUTION,
                "at": at,
            },
        )


def change(kind: str, field: str, old: object, new: object) -> dict[str, object]:
    """A changed field as change sets store it."""
    return {"type": kind, "field": field, "old": old, "new": new}
