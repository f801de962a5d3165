"""Products with a history, put straight into the tables."""

from datetime import date, datetime
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import orjson
from sqlalchemy import text

from mustit_pipeline.foundation.database import Database
from mustit_pipeline_tests.integration.product_data import product_data

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
