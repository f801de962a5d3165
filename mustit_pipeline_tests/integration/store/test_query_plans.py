"""The plans of the queries that run all the time, on tables that have grown."""

from collections.abc import Callable, Iterator
from datetime import date
from typing import Any

import pytest
from sqlalchemy import Connection, event, text

from mustit_pipeline.clock import utc_now
from mustit_pipeline.domain.states import TaskType
from mustit_pipeline.domain.values import ExecutionId, SellerId
from mustit_pipeline.store import executions, leases, stuck, task_counts, task_months, tasks
from mustit_pipeline.store.database import Database
from mustit_pipeline.store.tasks import TaskHome
from mustit_pipeline.store.turns import count_turns, next_turns
from mustit_pipeline_tests.integration.store.rows import MONTH, SELLER, Ground, ground

TASKS, SELLERS, HISTORY = 100_000, 2_000, 20_000
pytestmark = pytest.mark.untouched_database
BIG = ("crawler_tasks", "crawling_schedule_executions", "crawling_schedules", "sellers")
TYPES = [TaskType.PRODUCT_DETAIL, TaskType.PRODUCT_OPTION]
LEASE: dict[str, Any] = {"owner": "me", "lease_seconds": 30.0, "max_retries": 2, "max_releases": 5}
RUNNING = 200

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


def plans(database: Database, act: Callable[[Connection], object], *, run: bool = False) -> list[dict[str, Any]]:
    """The plan of every statement that the call sends; where asked, as it went when it was run once more."""
    sent: list[tuple[str, Any]] = []

    def remember(_: object, __: object, statement: str, parameters: Any, *___: object) -> None:
        sent.append((statement, parameters))

    with database.transaction() as connection:
        event.listen(connection, "before_cursor_execute", remember)
        act(connection)
        event.remove(connection, "before_cursor_execute", remember)
        return [
            connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON, ANALYZE {run}) {statement}", parameters).scalar_one()[0][
                "Plan"
            ]
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
        "claim": lambda c: leases.claim(c, home, TYPES, owner="me", limit=20, lease_seconds=30, max_retries=2),
        "claim any": lambda c: leases.claim_any(c, limit=20, **LEASE),
        "open_work": lambda c: task_counts.open_work(c, home, TYPES),
        "page_outcomes": lambda c: task_counts.page_outcomes(c, home),
        "expired of one": lambda c: leases.take_expired(c, limit=500, max_retries=2, execution_id=home.execution_id),
        "expired of all": lambda c: leases.take_expired(c, limit=500, max_retries=2),
        "find_open": lambda c: executions.find_open(c, SellerId(SELLER)),
        "find_latest": lambda c: executions.find_latest(c, SellerId(SELLER)),
        "turns": lambda c: next_turns(c, 4, busy=["x"], slice_seconds=600),
        "turns that wait": lambda c: count_turns(c, busy=["x"]),
        "stuck": lambda c: stuck.counts(c, utc_now()),
        "unended": lambda c: stuck.unended(c, 60),
        "unprocessed": lambda c: stuck.unprocessed(c, 60),
        "begun": stuck.begun,
    }
    found: dict[str, list[str]] = {}
    for name, act in queries.items():
        explained = plans(grown.database, act)
        assert explained, name
        found[name] = [table for plan in explained for table in scanned(plan)]
    assert found == {name: [] for name in queries}

    with grown.database.transaction() as connection:
        task_months.ensure_month(connection, date(2031, 1, 1))
        taken = leases.claim(connection, home, TYPES, owner="me", limit=50, lease_seconds=30, max_retries=2)
        stored = executions.get(connection, ExecutionId(home.execution_id))
    for lease in taken:
        lease.task.complete(utc_now())
    of_one_month: list[Callable[[Connection], object]] = [
        lambda c: leases.claim(c, home, TYPES, owner="me", limit=5, lease_seconds=30, max_retries=2),
        lambda c: leases.heartbeat(c, taken, 30),
        lambda c: leases.hand_back(c, taken[:10]),
        lambda c: leases.save(c, [(lease, 0.0) for lease in taken[10:]]),
        lambda c: task_counts.standings(c, home, recent_seconds=60, window_seconds=3600),
        lambda c: executions.failures_by_reason(c, stored),
        lambda c: tasks.cancel_open(c, home),
    ]
    for act in of_one_month:
        explained = plans(grown.database, act)
        assert [table for plan in explained for table in scanned(plan)] == []
        read = {table for plan in explained for table in relations(plan)}
        assert {table for table in read if table.startswith("crawler_tasks")} == {f"crawler_tasks_{MONTH:%Y_%m}"}


def relations(plan: dict[str, Any]) -> Iterator[str]:
    """Every table that the plan reads."""
    if "Relation Name" in plan and plan["Node Type"] != "ModifyTable":
        yield plan["Relation Name"]
    for child in plan.get("Plans", []):
        yield from relations(child)


def test_tasks_are_written_back_by_their_key_however_many_leases_have_just_ended(grown: Ground) -> None:
    def taken(limit: int) -> list[leases.LeasedTask]:
        with grown.database.transaction() as connection:
            claimed = leases.claim(
                connection, grown.home, TYPES, owner="me", limit=limit, lease_seconds=30, max_retries=2
            )
        for lease in claimed:
            lease.task.complete(utc_now())
        return claimed

    ended, held = taken(3000), taken(40)
    with grown.database.transaction() as connection:
        leases.save(connection, [(lease, 0.0) for lease in ended])
    writes: list[Callable[[Connection], object]] = [
        lambda c: leases.heartbeat(c, held, 30),
        lambda c: leases.hand_back(c, held[:20]),
        lambda c: leases.save(c, [(lease, 0.0) for lease in held[20:]]),
    ]
    for write in writes:
        for plan in plans(grown.database, write):
            used = {index for index in indexes(plan) if index.startswith("crawler_tasks")}
            assert used <= {f"crawler_tasks_{MONTH:%Y_%m}_pkey"}, plan


_ONE_LARGE_CRAWL = f"""
    INSERT INTO crawler_tasks (task_month, task_id, execution_id, seller_id, task_type, task_key, item_no, request_url,
                               status, priority)
    SELECT DATE '{MONTH}', gen_random_uuid(), :execution, '{SELLER}', 'PRODUCT_OPTION', 'PRODUCT_OPTION:' || n, n, '/',
           CASE WHEN n % 4 = 0 THEN 'PUBLISHED' ELSE 'COMPLETED' END, 20
    FROM generate_series(1, 40000) n
"""


def test_tasks_are_written_back_by_their_key_while_nothing_is_known_of_their_month(database: Database) -> None:
    """A month's first large crawl is over before anybody has counted its tasks for the planner."""
    standing = ground(database)
    with database.transaction() as connection:
        connection.execute(text(_ONE_LARGE_CRAWL), {"execution": standing.home.execution_id})
        connection.execute(text("UPDATE crawling_schedule_executions SET total_tasks = 40000"))
    for limit in (1, 40, 200):
        with database.transaction() as connection:
            held = leases.claim(
                connection, standing.home, TYPES, owner="me", limit=limit, lease_seconds=30, max_retries=2
            )
        for lease in held:
            lease.task.complete(utc_now())
        half = limit // 2
        writes: dict[str, Callable[[Connection], object]] = {
            "heartbeat": lambda c, held=held: leases.heartbeat(c, held, 30),
            "hand back": lambda c, held=held[:half]: leases.hand_back(c, held),
            "save": lambda c, held=held[half:]: leases.save(c, [(lease, 0.0) for lease in held]),
        }
        for name, write in writes.items():
            assert sum(map(touched, plans(database, write, run=True))) < 20 * (limit + 1), (name, limit)
    with database.transaction() as connection:
        leases.claim(connection, standing.home, TYPES, owner="me", limit=10, lease_seconds=-1, max_retries=2)
    taken = plans(database, lambda c: leases.take_expired(c, limit=500, max_retries=2), run=True)
    assert sum(map(touched, taken)) < 20 * 10


def indexes(plan: dict[str, Any]) -> Iterator[str]:
    """Every index that the plan goes by."""
    if "Index Name" in plan:
        yield plan["Index Name"]
    for child in plan.get("Plans", []):
        yield from indexes(child)


_MANY_CRAWLS = [
    f"""INSERT INTO sellers (seller_id, name, status, interval_amount, interval_unit)
        SELECT 'seller ' || n, 'n', 'ACTIVE', 1, 'DAYS' FROM generate_series(1, {RUNNING}) n""",
    """INSERT INTO crawling_schedules (schedule_id, seller_id, rule_name, expression, status, next_due_at)
       SELECT gen_random_uuid(), seller_id, seller_id, 'rate(1 day)', 'ACTIVE', now()
       FROM sellers WHERE seller_id LIKE 'seller %'""",
    """INSERT INTO crawling_schedule_executions (execution_id, seller_id, schedule_id, status, triggered_by, task_month,
                                                 sweep_status)
       SELECT gen_random_uuid(), seller_id, schedule_id, 'RUNNING', 't',
              CASE WHEN length(seller_id) % 2 = 0 THEN CAST(:first AS date) ELSE CAST(:second AS date) END, 'COMPLETE'
       FROM crawling_schedules WHERE seller_id LIKE 'seller %'""",
    f"""INSERT INTO crawler_tasks (task_month, task_id, execution_id, seller_id, task_type, task_key, item_no,
                                   request_url, status, priority)
        SELECT e.task_month, gen_random_uuid(), e.execution_id, e.seller_id, 'PRODUCT_OPTION', 'PRODUCT_OPTION:' || n,
               n, '/auction_products/1/options', 'PUBLISHED', 20
        FROM crawling_schedule_executions e, generate_series(1, {TASKS // RUNNING}) n ORDER BY n""",
]


@pytest.mark.parametrize("analyzed", [False, True], ids=["just loaded", "analyzed"])
def test_a_claim_among_many_crawls_of_two_months_looks_only_at_what_it_takes(
    database: Database, analyzed: bool
) -> None:
    months = {"first": MONTH, "second": date(2026, 12, 1)}
    with database.transaction() as connection:
        for month in months.values():
            task_months.ensure_month(connection, month)
        # Planned as if by somebody who knows nothing of these tables yet.
        connection.execute(text("ANALYZE"))
        for statement in _MANY_CRAWLS:
            used = {name: value for name, value in months.items() if f":{name}" in statement}
            connection.execute(text(statement), used)
        if analyzed:
            connection.execute(text("ANALYZE"))
    for limit in (1, 50, 200):
        with database.transaction() as connection:
            claimed = leases.claim_any(connection, limit=limit, **LEASE)
        assert len({lease.home.execution_id for lease in claimed}) == len(claimed) == limit
        explained = plans(database, lambda c, limit=limit: leases.claim_any(c, limit=limit, **LEASE), run=True)
        assert [table for plan in explained for table in scanned(plan) if table.startswith("crawler_tasks")] == []
        assert sum(map(touched, explained)) < 20 * (RUNNING + limit)


def touched(plan: dict[str, Any]) -> float:
    """Rows that the steps of a plan that was run have handled, those they dropped included."""
    dropped = sum(value for name, value in plan.items() if name.startswith("Rows Removed"))
    here = (plan["Actual Rows"] + dropped) * plan["Actual Loops"]
    return here + sum(touched(child) for child in plan.get("Plans", []))
