"""The plans of the queries that run all the time, on tables that have grown."""

from collections.abc import Callable, Iterator
from datetime import date
from typing import Any

import pytest
from sqlalchemy import Connection, event, text

from mustit_pipeline.clock import utc_now
from mustit_pipeline.domain.states import TaskType
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.store import executions, sellers, stuck, task_counts, task_months, tasks
from mustit_pipeline.store.database import Database
from mustit_pipeline.store.tasks import TaskHome
from mustit_pipeline_tests.integration.store.rows import MONTH, SELLER, Ground, ground

TASKS, SELLERS, HISTORY = 100_000, 2_000, 20_000
BIG = ("crawler_tasks", "crawling_schedule_executions", "crawling_schedules", "sellers")
TYPES = [TaskType.PRODUCT_DETAIL, TaskType.PRODUCT_OPTION]

_GROW = [
    f"""INSERT INTO sellers (seller_id, name, status, interval_amount, interval_unit)
        SELECT 'seller ' || n, 'n', 'ACTIVE', 1, 'DAYS' FROM generate_series(1, {SELLERS}) n""",
    """INSERT INTO crawling_schedules (schedule_id, seller_id, rule_name, expression, status, next_due_at)
       SELECT gen_random_uuid(), seller_id, seller_id, 'rate(1 day)', 'ACTIVE', now() + random() * interval '1 day'
       FROM sellers WHERE seller_id LIKE 'seller %'""",
    f"""INSERT INTO crawling_schedule_executions (execution_id, seller_id, schedule_id, status, triggered_by,
                                                  task_month, sweep_status)
        SELECT gen_random_uuid(), c.seller_id, c.schedule_id, 'COMPLETED', 't', DATE '{MONTH}', 'COMPLETE'
        FROM generate_series(1, {HISTORY // SELLERS}) n, crawling_schedules c WHERE c.seller_id LIKE 'seller %'""",
    # A tenth of the tasks is the running execution's; the rest is history, with a few leases here and there.
    f"""INSERT INTO crawler_tasks (task_month, task_id, execution_id, seller_id, task_type, task_key, item_no,
                                   request_url, status, priority, lease_owner, lease_expires_at)
        SELECT DATE '{MONTH}', gen_random_uuid(), CASE WHEN n % 10 = 0 THEN CAST(:execution AS uuid)
                    ELSE CAST(md5(CAST(n % 500 AS text)) AS uuid) END,
               '{SELLER}', 'PRODUCT_OPTION', 'PRODUCT_OPTION:' || n, n, '/', s.status, 20,
               CASE WHEN s.status = 'IN_PROGRESS' THEN 'x' END,
               CASE WHEN s.status = 'IN_PROGRESS' THEN now() + (n % 60 - 1) * interval '1 second' END
        FROM generate_series(1, {TASKS}) n,
             LATERAL (SELECT CASE WHEN n % 1000 = 0 THEN 'IN_PROGRESS' WHEN n % 10 = 0 AND n % 20 = 0 THEN 'PUBLISHED'
                                  ELSE 'COMPLETED' END AS status) s""",
    "UPDATE crawling_schedule_executions SET total_tasks = 100000 WHERE execution_id = :execution",
    "ANALYZE",
]


@pytest.fixture
def grown(database: Database) -> Ground:
    standing = ground(database)
    with database.transaction() as connection:
        for statement in _GROW:
            connection.execute(text(statement), {"execution": standing.home.execution_id})
    return standing


def plans(database: Database, act: Callable[[Connection], object]) -> list[dict[str, Any]]:
    """The plan of every statement that the call sends."""
    sent: list[tuple[str, Any]] = []

    def remember(_: object, __: object, statement: str, parameters: Any, *___: object) -> None:
        sent.append((statement, parameters))

    with database.transaction() as connection:
        event.listen(connection, "before_cursor_execute", remember)
        act(connection)
        event.remove(connection, "before_cursor_execute", remember)
        return [
            connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON) {statement}", parameters).scalar_one()[0]["Plan"]
            for statement, parameters in sent
        ]


def scanned(plan: dict[str, Any]) -> Iterator[str]:
    """Big tables that the plan reads from end to end; the default partition is empty."""
    big = plan.get("Relation Name", "").startswith(BIG) and plan["Relation Name"] != "crawler_tasks_default"
    if plan["Node Type"] == "Seq Scan" and big:
        yield plan["Relation Name"]
    for child in plan.get("Plans", []):
        yield from scanned(child)


def test_no_query_of_the_hot_path_reads_a_big_table_from_end_to_end_or_another_months_tasks(grown: Ground) -> None:
    home: TaskHome = grown.home
    queries: dict[str, Callable[[Connection], object]] = {
        "claim": lambda c: tasks.claim(c, home, TYPES, owner="me", limit=20, lease_seconds=30, max_retries=2),
        "claimable": lambda c: task_counts.claimable(c, home, TYPES, 1000),
        "open_work": lambda c: task_counts.open_work(c, home, TYPES),
        "page_outcomes": lambda c: task_counts.page_outcomes(c, home),
        "expired of one": lambda c: tasks.take_expired(c, limit=500, max_retries=2, execution_id=home.execution_id),
        "expired of all": lambda c: tasks.take_expired(c, limit=500, max_retries=2),
        "find_open": lambda c: executions.find_open(c, SellerId(SELLER)),
        "find_latest": lambda c: executions.find_latest(c, SellerId(SELLER)),
        "workable": lambda c: executions.workable(c, 10),
        "stuck": lambda c: stuck.counts(c, utc_now()),
        "unended": lambda c: stuck.unended(c, 60),
        "begun": stuck.begun,
        "due": lambda c: sellers.due(c, 4, busy=["x"]),
    }
    found: dict[str, list[str]] = {}
    for name, act in queries.items():
        explained = plans(grown.database, act)
        assert explained, name
        found[name] = [table for plan in explained for table in scanned(plan)]
    assert found == {name: [] for name in queries}

    with grown.database.transaction() as connection:
        task_months.ensure_month(connection, date(2031, 1, 1))
        leases = tasks.claim(connection, home, TYPES, owner="me", limit=50, lease_seconds=30, max_retries=2)
    for lease in leases:
        lease.task.complete(utc_now())
    writes: list[Callable[[Connection], object]] = [
        lambda c: tasks.claim(c, home, TYPES, owner="me", limit=5, lease_seconds=30, max_retries=2),
        lambda c: tasks.heartbeat(c, leases, 30),
        lambda c: tasks.hand_back(c, leases[:10]),
        lambda c: tasks.save(c, [(lease, 0.0) for lease in leases[10:]]),
    ]
    for write in writes:
        explained = plans(grown.database, write)
        assert [table for plan in explained for table in scanned(plan)] == []
        read = {table for plan in explained for table in relations(plan)}
        assert {table for table in read if table.startswith("crawler_tasks")} == {f"crawler_tasks_{MONTH:%Y_%m}"}


def relations(plan: dict[str, Any]) -> Iterator[str]:
    """Every table that the plan reads."""
    if "Relation Name" in plan and plan["Node Type"] != "ModifyTable":
        yield plan["Relation Name"]
    for child in plan.get("Plans", []):
        yield from relations(child)
