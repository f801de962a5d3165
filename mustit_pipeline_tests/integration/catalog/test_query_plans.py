"""The hot statements find their rows by index, however much history lies beside them."""

import re
from typing import Any

import pytest
from sqlalchemy import TextClause, text

from mustit_pipeline.store import outbox, products, raw
from mustit_pipeline.store.database import Database
from mustit_pipeline_tests.integration.catalog.shelf import Shelf

ROWS = 20_000
BIG = "products|product_change_sets|product_outbox|product_raw_data|crawler_tasks"
FILL = (
    """
    INSERT INTO products (seller_id, item_no, minishop_data_hash, detail_data_hash, option_data_hash, data, data_hash,
                          published_hash, version, last_seen_execution_id)
    SELECT CASE WHEN i % 2 = 0 THEN 'big' ELSE 'small' END, i, 'a', 'b', 'c', '{}', 'x',
           CASE WHEN i % 100 = 0 THEN 'y' ELSE 'x' END, 1, :execution
    FROM generate_series(1, :rows) AS i
    """,
    """
    INSERT INTO product_change_sets (seller_id, item_no, version, life_cycle, change_types, changes, product_data,
                                     execution_id)
    SELECT seller_id, item_no, 1, 'CREATED', '{}', '[]', '{}', gen_random_uuid() FROM products
    """,
    """
    INSERT INTO product_outbox (seller_id, item_no, version, event_type, idempotency_key, status)
    SELECT seller_id, item_no, 1, 'PRODUCT_CREATED', seller_id || item_no,
           CASE WHEN item_no % 10 = 0 THEN 'WAITING' ELSE 'COMPLETED' END
    FROM products
    """,
    """
    INSERT INTO product_raw_data (seller_id, execution_id, task_id, source, item_no, body, status)
    SELECT seller_id, gen_random_uuid(), gen_random_uuid(),
           CASE WHEN item_no % 4 < 2 THEN 'PRODUCT_DETAIL' ELSE 'PRODUCT_OPTION' END, item_no, '{}',
           CASE WHEN item_no % 9 = 0 THEN 'PENDING' WHEN item_no % 1000 = 1 THEN 'FAILED' ELSE 'PROCESSED' END
    FROM products
    """,
    """
    INSERT INTO crawler_tasks (task_month, task_id, execution_id, seller_id, task_type, task_key, item_no, request_url,
                               status, priority)
    SELECT e.task_month, gen_random_uuid(), e.execution_id, p.seller_id, 'PRODUCT_DETAIL', p.item_no::text, p.item_no,
           '/', CASE WHEN p.item_no % 7 = 0 THEN 'PUBLISHED' ELSE 'COMPLETED' END, 1
    FROM products p JOIN crawling_schedule_executions e USING (seller_id)
    """,
)


@pytest.fixture
def full(database: Database) -> Shelf:
    shelf = Shelf(database, "big")
    Shelf(database, "small")
    with database.transaction() as connection:
        for statement in FILL:
            values = {"execution": shelf.stored.home.execution_id, "rows": ROWS}
            used = {name: value for name, value in values.items() if f":{name}" in statement}
            connection.execute(text(statement), used)
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE"))
    return shelf


def plan(database: Database, statement: TextClause, values: dict[str, Any]) -> str:
    with database.engine.connect() as connection:
        rows = connection.execute(text("EXPLAIN " + statement.text), values)
        found = "\n".join(row[0] for row in rows)
        connection.rollback()
    return found


def test_no_hot_statement_reads_a_big_table_from_end_to_end(full: Shelf) -> None:
    ids = [row["outbox_id"] for row in full.rows("SELECT outbox_id FROM product_outbox LIMIT 20")]
    items = list(range(2, 42, 2))
    lease = {"owner": "relay", "lease_seconds": 60.0}
    settled: dict[str, Any] = {
        "ids": ids,
        "lease_nos": [1] * 20,
        "statuses": ["COMPLETED"] * 20,
        "retry_counts": [0] * 20,
        "http_statuses": [200] * 20,
        "errors": [None] * 20,
        "types": ["PRODUCT_CREATED"] * 20,
        "delays": [0.0] * 20,
        "sent": [True] * 20,
    }
    reopened = {"seller_id": "big", "since": None, "attempts": 3, "target": "PENDING", "sources": ["FAILED"]}
    statements: dict[str, tuple[TextClause, dict[str, Any]]] = {
        "claim": (outbox._CLAIM_DUE, lease | {"limit": 100}),  # pyright: ignore[reportPrivateUsage]
        "trial": (outbox._CLAIM_TRIAL, lease | {"limit": 1}),  # pyright: ignore[reportPrivateUsage]
        "claimed": (outbox._CLAIMED, {"ids": ids}),  # pyright: ignore[reportPrivateUsage]
        "settle": (outbox._SETTLE, settled),  # pyright: ignore[reportPrivateUsage]
        "delivered": (
            outbox._DELIVERED,  # pyright: ignore[reportPrivateUsage]
            {"sellers": ["big"] * 20, "items": items, "versions": [1] * 20},
        ),
        "release": (outbox._RELEASE_EXPIRED, {}),  # pyright: ignore[reportPrivateUsage]
        "next due": (outbox._NEXT_DUE, {}),  # pyright: ignore[reportPrivateUsage]
        "supersede": (outbox._SUPERSEDE, {"seller_id": "big", "items": items}),  # pyright: ignore[reportPrivateUsage]
        "pending": (raw._PENDING, {"seller_id": "big", "pages": 2, "products": 400}),  # pyright: ignore[reportPrivateUsage]
        "reopen": (raw._REOPEN, reopened),  # pyright: ignore[reportPrivateUsage]
        "unpublished": (products._UNPUBLISHED, {"seller_id": "big", "limit": 500}),  # pyright: ignore[reportPrivateUsage]
        "lock": (products._LOCK, {"seller_id": "big", "items": items}),  # pyright: ignore[reportPrivateUsage]
    }

    plans = {name: plan(full.database, statement, values) for name, (statement, values) in statements.items()}

    # The partition of other months is empty, and reading nothing needs no index.
    scanned = {name: re.findall(rf"Seq Scan on ((?:{BIG})\w*)", found) for name, found in plans.items()}
    assert {name: set(tables) - {"crawler_tasks_default"} for name, tables in scanned.items()} == {
        name: set() for name in statements
    }
