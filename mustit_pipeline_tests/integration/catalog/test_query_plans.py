"""The hot statements find their rows by index, however much history lies beside them."""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Connection, TextClause, text

from mustit_pipeline.domain.filters import ChangeKind, IdPrefix
from mustit_pipeline.domain.states import OutboxStatus, RawStatus, TaskType
from mustit_pipeline.domain.values import ItemNo, SellerId
from mustit_pipeline.store import (
    history,
    holds,
    outbox,
    outbox_listing,
    products,
    publication,
    raw,
    raw_listing,
    settlements,
    stuck,
)
from mustit_pipeline.store.database import Database
from mustit_pipeline.store.raw import NewRaw
from mustit_pipeline_tests.integration.catalog.shelf import Shelf
from mustit_pipeline_tests.integration.store.test_query_plans import plans, touched

pytestmark = pytest.mark.untouched_database
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
    reopened = {
        "seller_id": "big",
        "since": None,
        "until": None,
        "attempts": 3,
        "target": "PENDING",
        "sources": ["FAILED"],
    }
    statements: dict[str, tuple[TextClause, dict[str, Any]]] = {
        "claim": (outbox._CLAIM_DUE, lease | {"limit": 100, "fresh": 100, "failing": 50}),  # pyright: ignore[reportPrivateUsage]
        "trial": (outbox._CLAIM_TRIAL, lease | {"limit": 1, "fresh": 100, "failing": 100}),  # pyright: ignore[reportPrivateUsage]
        "claimed": (outbox._CLAIMED, {"ids": ids}),  # pyright: ignore[reportPrivateUsage]
        "settle": (settlements._SETTLE, settled),  # pyright: ignore[reportPrivateUsage]
        "delivered": (
            settlements._DELIVERED,  # pyright: ignore[reportPrivateUsage]
            {"sellers": ["big"] * 20, "items": items, "versions": [1] * 20},
        ),
        "deliveries since": (
            settlements._SINCE,  # pyright: ignore[reportPrivateUsage]
            {"ids": ids[:1], "sinces": [datetime.now(UTC)], "newest": 200},
        ),
        "release": (outbox._RELEASE_EXPIRED, {}),  # pyright: ignore[reportPrivateUsage]
        "next due": (outbox._NEXT_DUE, {}),  # pyright: ignore[reportPrivateUsage]
        "supersede": (outbox._SUPERSEDE, {"sellers": ["big"] * len(items), "items": items}),  # pyright: ignore[reportPrivateUsage]
        "pending": (raw._PENDING, {"seller_id": "big", "pages": 2, "products": 400, "beside": [1, 2, 3]}),  # pyright: ignore[reportPrivateUsage]
        "still next": (raw._STILL_NEXT, {"seller_id": "big", "ids": items}),  # pyright: ignore[reportPrivateUsage]
        "unchanged": (raw._UNCHANGED, {"seller_id": "big", "target": "PROCESSED", "sources": ["PENDING"]}),  # pyright: ignore[reportPrivateUsage]
        "take back": (
            raw._TAKE_BACK,  # pyright: ignore[reportPrivateUsage]
            {"sellers": ["big"] * 21, "items": [*items, None], "tasks": [uuid4() for _ in range(21)]},
        ),
        "reopen": (raw._REOPEN, reopened),  # pyright: ignore[reportPrivateUsage]
        "unpublished": (publication._UNPUBLISHED, {"seller_id": "big", "limit": 500}),  # pyright: ignore[reportPrivateUsage]
        "lock": (products._LOCK, {"seller_id": "big", "items": items}),  # pyright: ignore[reportPrivateUsage]
    }

    plans = {name: plan(full.database, statement, values) for name, (statement, values) in statements.items()}

    # The partition of other months is empty, and reading nothing needs no index.
    scanned = {name: re.findall(rf"Seq Scan on ((?:{BIG})\w*)", found) for name, found in plans.items()}
    assert {name: set(tables) - {"crawler_tasks_default"} for name, tables in scanned.items()} == {
        name: set() for name in statements
    }


def test_no_list_that_an_operator_asks_for_reads_or_sorts_a_big_table_from_end_to_end(full: Shelf) -> None:
    big, since = SellerId("big"), datetime.now(UTC) - timedelta(days=1)
    event_id = IdPrefix(str(full.rows("SELECT outbox_id FROM product_outbox LIMIT 1")[0]["outbox_id"]))
    failed, waiting = OutboxStatus.FAILED, OutboxStatus.WAITING
    price = ChangeKind.parse("PRICE")
    lists: dict[str, Callable[[Connection], object]] = {
        "products": lambda c: history.products(c, ItemNo(2), None),
        "versions": lambda c: history.versions(c, "big", 2, limit=50),
        "changes": lambda c: history.changes(c, seller_id=None, since=None, kind=None, limit=50),
        "changes since": lambda c: history.changes(c, seller_id=None, since=since, kind=price, limit=50),
        "changes of one": lambda c: history.changes(c, seller_id=big, since=None, kind=price, limit=50),
        "events": lambda c: outbox_listing.newest(c, status=None, seller_id=None, limit=50),
        "waiting events": lambda c: outbox_listing.newest(c, status=waiting, seller_id=None, limit=50),
        "failed events of one": lambda c: outbox_listing.newest(c, status=failed, seller_id=big, limit=50),
        "event": lambda c: outbox_listing.find(c, event_id),
        "retry": lambda c: outbox_listing.retry_all(c, status=failed, seller_id=None),
        "bodies": lambda c: raw_listing.newest(c, status=None, seller_id=None, since=None, limit=50),
        "bodies of one": lambda c: raw_listing.newest(c, status=None, seller_id=big, since=since, limit=50),
        "failed bodies": lambda c: raw_listing.newest(c, status=RawStatus.FAILED, seller_id=big, since=None, limit=50),
        "failures": lambda c: raw_listing.count_failed(c, None, None, None),
        "names": lambda c: holds.names(c, big, [2, 4, 6]),
    }

    found = {name: [row for row in plans(full.database, act) for row in heavy(row)] for name, act in lists.items()}

    assert found == {name: [] for name in lists}


def test_sellers_that_nobody_processes_are_found_without_going_through_what_waits(full: Shelf) -> None:
    """Asked every minute, also while a crawl of many has left thousands of bodies and unpublished products."""
    waiting = full.rows("SELECT count(*) AS n FROM product_raw_data WHERE status = 'PENDING'")[0]["n"]
    for over, found in ((False, []), (True, ["big", "small"])):
        if over:
            full.change(
                "UPDATE crawling_schedule_executions SET status = 'COMPLETED', updated_at = now() - interval '1 hour'"
            )
        with full.database.reading() as connection:
            assert stuck.unprocessed(connection, 60) == found
        explained = plans(full.database, lambda c: stuck.unprocessed(c, 60), run=True)
        assert [row for plan in explained for row in heavy(plan)] == []
        assert sum(map(touched, explained)) < 100 < waiting / 10


def heavy(node: dict[str, Any]) -> Iterator[str]:
    """Big tables that a plan reads from end to end, and sorts of more than a screen or two would need."""
    if node["Node Type"] == "Seq Scan" and re.fullmatch(f"{BIG}", node["Relation Name"]):
        yield f"reads {node['Relation Name']}"
    if node["Node Type"] == "Sort" and node["Plans"][0]["Plan Rows"] > ROWS / 10:
        yield f"sorts {node['Plans'][0]['Plan Rows']} rows"
    for child in node.get("Plans", []):
        yield from heavy(child)


def test_freshly_stored_bodies_are_gone_through_once_although_the_planner_has_not_heard_of_them(
    database: Database,
) -> None:
    """Right after a crawl nothing has been analyzed: a plan for one row would go through all of them for each."""
    shelf, many = Shelf(database, "big"), 2_000
    shelf.swept()
    with database.transaction() as connection:
        connection.execute(text("ANALYZE"))
        connection.execute(
            text("""
                INSERT INTO products (seller_id, item_no, minishop_data_hash, detail_data_hash, option_data_hash, data,
                                      data_hash)
                SELECT 'big', item, 'a', 'b', 'c', '{}', 'x' FROM generate_series(1, :many) AS item
            """),
            {"many": many},
        )
        raw.add(connection, [_body(shelf, item, "b" if item % 9 else "new") for item in range(1, many + 1)])
    late = [_body(shelf, item, "b") for item in range(1, 101)]

    def add_and_take_back(connection: Connection) -> None:
        raw.add(connection, late)
        raw.take_back(connection, late)

    ids = [row["raw_id"] for row in shelf.rows("SELECT raw_id FROM product_raw_data LIMIT 500")]
    work = {
        "take back": plans(database, add_and_take_back, run=True),
        "still next": plans(database, lambda c: raw.still_next(c, "big", dict.fromkeys(ids, 0)), run=True),
        "unchanged": plans(database, lambda c: raw.settle_unchanged(c, "big"), run=True),
        "unpublished": plans(database, lambda c: publication.unpublished(c, "big", 500), run=True),
    }

    most = {"take back": 20 * len(late), "still next": 5 * len(ids), "unchanged": 20 * many, "unpublished": 10 * many}
    handled = {name: sum(map(touched, explained)) for name, explained in work.items()}
    assert {name: count for name, count in handled.items() if not 0 < count < most[name]} == {}
    assert shelf.rows("SELECT count(*) AS n FROM product_raw_data WHERE status = 'PENDING'") == [{"n": many // 9}]


def _body(shelf: Shelf, item: int, content_hash: str) -> NewRaw:
    home = shelf.stored.home
    detail = TaskType.PRODUCT_DETAIL
    return NewRaw(
        home.seller_id, home.execution_id, uuid4(), detail, item, None, "{}", datetime.now(UTC), "{}", content_hash
    )
