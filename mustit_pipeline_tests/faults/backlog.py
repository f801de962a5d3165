"""A backlog of waiting events, written straight into the tables, and the replay of those that chance made FAILED."""

from collections.abc import Sequence

import orjson
from sqlalchemy import text

from mustit_pipeline.domain.states import OutboxStatus
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.outbox.sql import outbox_list
from mustit_pipeline_tests.integration.crawls import register

DATA = {
    "brandName": "브랜드",
    "brandNameKr": "브랜드",
    "brandCode": 153,
    "category": {"header": None, "large": None, "medium": None, "small": None},
    "normalPrice": 1083000,
    "sellingPrice": 621000,
    "discountPrice": 540000,
    "discountRate": 48,
    "stock": 3,
    "soldOut": False,
    "images": ["https://image.example/1.jpg"],
    "tags": ["무료배송"],
    "description": "<p>설명</p>" * 100,
    "descriptionImages": [],
    "originCountry": "케냐",
    "itemStatus": "새상품",
    "shipping": {"type": "DOMESTIC", "fee": 0, "feeType": "FREE", "averageDelivery": "", "free": True},
    "options": [{"optionNo": 1, "color": "", "size": "US 4", "stock": 1, "sizeGuide": ""}],
}

_FILL = (
    """
    INSERT INTO products (seller_id, item_no, version, data_hash, published_hash)
    SELECT :seller, i, 1, 'x', 'x' FROM unnest(CAST(:items AS bigint[])) AS i
    """,
    """
    INSERT INTO product_change_sets (seller_id, item_no, version, life_cycle, change_types, changes, product_data,
                                     execution_id)
    SELECT :seller, i, 1, 'CREATED', '{}', '[]', replace(:data, '"itemNo"\\:0', '"itemNo"\\:' || i), gen_random_uuid()
    FROM unnest(CAST(:items AS bigint[])) AS i
    """,
    """
    INSERT INTO product_outbox (seller_id, item_no, version, event_type, idempotency_key, status)
    SELECT :seller, i, 1, 'PRODUCT_CREATED', CAST(:seller AS text) || '\\:' || i || '\\:1', 'WAITING'
    FROM unnest(CAST(:items AS bigint[])) AS i
    """,
)


def fill(database: Database, seller_id: str, items: Sequence[int]) -> None:
    """A seller whose products each have one version that waits; the id must need no percent-encoding.

    Crawling that many products would take hours.
    """
    register(database, seller_id)
    data = orjson.dumps({"itemNo": 0, "sellerId": seller_id, "name": "상품"} | DATA).decode()
    given = {"seller": seller_id, "items": list(items), "data": data}
    with database.transaction() as connection:
        for statement in _FILL:
            used = {name: value for name, value in given.items() if f":{name}" in statement}
            connection.execute(text(statement), used)


def replay_failed(database: Database) -> int:
    """Replay by hand what was struck in each of its five tries: one in 243 of a third; nothing else may be FAILED."""
    with database.transaction() as connection:
        failed, tried, rows = connection.execute(
            text("""
                SELECT count(*) FILTER (WHERE status = 'FAILED'),
                       count(*) FILTER (WHERE status = 'FAILED' AND retry_count = 5), count(*) FROM product_outbox
            """)
        ).one()
        if failed != tried or failed > rows / 50 + 3:
            raise AssertionError(f"{failed} of {rows} events are FAILED, {tried} of them after five tries")
        outbox_list.retry_all(connection, status=OutboxStatus.FAILED, seller_id=None)
    return failed
