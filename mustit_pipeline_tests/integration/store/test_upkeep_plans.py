"""The plans of what runs by night and by the hour, on tables that have grown: nobody reads them from end to end."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Connection, text

from mustit_pipeline.agents import roster
from mustit_pipeline.clock import utc_now
from mustit_pipeline.store import (
    agent_pool,
    agent_use,
    deletions,
    deliveries,
    fingerprints,
    metrics,
    products,
    refreshes,
    retention,
    sightings,
    stuck,
)
from mustit_pipeline.store.agent_bookings import AgentLimits
from mustit_pipeline.store.database import Database
from mustit_pipeline_tests.integration.store.rows import MONTH, ground
from mustit_pipeline_tests.integration.store.test_query_plans import plans

SELLERS, DAYS, PRODUCTS, VERSIONS = 200, 300, 40, 4
pytestmark = pytest.mark.untouched_database
BIG = (
    "crawler_tasks",
    "crawling_schedule_executions",
    "products",
    "product_change_sets",
    "product_outbox",
    "product_raw_data",
    "agent_bookings",
)
SELLER = "seller 7"

_GROW = [
    f"""INSERT INTO sellers (seller_id, name, status, interval_amount, interval_unit)
        SELECT 'seller ' || n, 'n', 'ACTIVE', 1, 'DAYS' FROM generate_series(1, {SELLERS}) n""",
    """INSERT INTO crawling_schedules (schedule_id, seller_id, rule_name, expression, status, next_due_at)
       SELECT gen_random_uuid(), seller_id, seller_id, 'rate(1 day)', 'ACTIVE', now()
       FROM sellers WHERE seller_id LIKE 'seller %'""",
    f"""INSERT INTO crawling_schedule_executions (execution_id, seller_id, schedule_id, status, triggered_by,
                                                  task_month, sweep_status, started_at, ended_at, total_tasks,
                                                  completed_tasks, listed_count)
        SELECT gen_random_uuid(), c.seller_id, c.schedule_id, 'COMPLETED', 't', DATE '{MONTH}', 'COMPLETE',
               now() - n * interval '1 day', now() - n * interval '1 day', 10, 10, 4
        FROM generate_series(1, {DAYS}) n, crawling_schedules c WHERE c.seller_id LIKE 'seller %'""",
    f"""INSERT INTO crawler_tasks (task_month, task_id, execution_id, seller_id, task_type, task_key, item_no,
                                   request_url, status, priority)
        SELECT DATE '{MONTH}', gen_random_uuid(), md5(CAST(n % 500 AS text))::uuid, 'seller ' || n % {SELLERS} + 1,
               'PRODUCT_OPTION', 'PRODUCT_OPTION:' || n, n, '/', 'COMPLETED', 20
        FROM generate_series(1, 20000) n""",
    f"""INSERT INTO products (seller_id, item_no, minishop_data_hash, detail_data_hash, option_data_hash, version)
        SELECT 'seller ' || s, s * 1000 + n, 'a', 'b', 'c', 1
        FROM generate_series(1, {SELLERS}) s, generate_series(1, {PRODUCTS}) n""",
    f"""INSERT INTO product_change_sets (seller_id, item_no, version, life_cycle, change_types, changes, product_data,
                                         execution_id, detected_at)
        SELECT p.seller_id, p.item_no, v, CASE WHEN v = 1 THEN 'CREATED' ELSE 'UPDATED' END, '{{PRICE}}', '[]', '{{}}',
               md5(CAST(v AS text))::uuid, now() - ({VERSIONS} + 1 - v) * interval '50 days'
        FROM products p, generate_series(1, {VERSIONS}) v""",
    """INSERT INTO product_outbox (seller_id, item_no, version, event_type, idempotency_key, status, completed_at)
       SELECT seller_id, item_no, version, 'PRODUCT_UPDATED', item_no || ':' || version, 'COMPLETED',
              detected_at + interval '1 hour'
       FROM product_change_sets""",
    f"""UPDATE product_outbox SET status = 'WAITING', completed_at = NULL
        WHERE version = {VERSIONS} AND seller_id = '{SELLER}'""",
    """INSERT INTO product_raw_data (seller_id, execution_id, task_id, source, item_no, body, content_hash, status,
                                     fetched_at)
       SELECT seller_id, gen_random_uuid(), gen_random_uuid(), 'PRODUCT_DETAIL', item_no, '{}', version % 2,
              'PROCESSED', detected_at
       FROM product_change_sets""",
    """INSERT INTO agent_bookings (booking_id, agent_id, booked_at, expires_at)
       SELECT gen_random_uuid(), agent_id, now() - n * interval '50 seconds', now() - n * interval '50 seconds'
       FROM user_agents, generate_series(1, 400) n""",
    "UPDATE agent_bookings SET answered_at = expires_at",
]


@pytest.fixture
def grown(database: Database) -> Database:
    ground(database)
    with database.transaction() as connection:
        roster.ensure_builtin(connection)
        for statement in _GROW:
            connection.execute(text(statement))
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("VACUUM ANALYZE")
    return database


def scanned(plan: dict[str, Any], more: tuple[str, ...] = ()) -> Iterator[str]:
    """Big tables that the plan reads from end to end; the default partition is empty."""
    name = plan.get("Relation Name", "")
    if plan["Node Type"] == "Seq Scan" and name.startswith((*BIG, *more)) and name != "crawler_tasks_default":
        yield name
    for child in plan.get("Plans", []):
        yield from scanned(child, more)


def test_neither_metrics_nor_refreshes_nor_retention_nor_sweeps_nor_agents_read_a_big_table_from_end_to_end(
    grown: Database,
) -> None:
    now = utc_now()
    day = timedelta(days=1)
    queries: dict[str, Callable[[Connection], object]] = {
        "a day of all sellers": lambda c: metrics.seller_days(c, now - 2 * day, now - day),
        "a day of one seller": lambda c: metrics.seller_days(c, now - 2 * day, now - day, SELLER),
        "days that went on": lambda c: metrics.days_moved_since(c, now - day, horizon=now - 8 * day, zone="Asia/Seoul"),
        "fingerprints": lambda c: fingerprints.fingerprints(c, SELLER),
        "sightings": lambda c: sightings.sightings(c, SELLER, uuid4(), now - day),
        "deliveries": lambda c: deliveries.seller_deliveries(c, [SELLER], now - day),
        "stale sellers": lambda c: refreshes.stale(c, now, 7 * day, everything=False, busy=["x"]),
        "sellers with old bodies": lambda c: retention.sellers_with_bodies(c, now - 180 * day),
        "expired bodies": lambda c: retention.expired_bodies(
            c, SELLER, aged_before=now - 90 * day, unchanged_before=now - 7 * day
        ),
        "sellers that nobody processes": lambda c: stuck.unprocessed(c, 60),
        "seen by a sweep": lambda c: products.count_seen(c, SELLER, uuid4()),
        "absent from a sweep": lambda c: deletions.absence(c, SELLER, uuid4(), now),
        "recent answers": lambda c: agent_pool.read_recent_answers(
            c, now - timedelta(seconds=5), now - timedelta(hours=1), timedelta(seconds=5)
        ),
        "the last good answer": lambda c: agent_pool.last_good_answer(c, now - timedelta(hours=1)),
        "what agents have left": lambda c: agent_use.usable(c, AgentLimits(80, 3600, 1), now),
        "old bookings": lambda c: retention.count_aged(c, retention.BOOKINGS, now - day / 6),
    }
    found: dict[str, list[str]] = {}
    for name, act in queries.items():
        explained = plans(grown, act)
        assert explained, name
        found[name] = [table for plan in explained for table in scanned(plan)]
    assert found == {name: [] for name in queries}
