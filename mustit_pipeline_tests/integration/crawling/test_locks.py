"""Storing, releasing and renewing beside a cancellation: they wait for each other, and none deadlocks."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest
from sqlalchemy import event, text

from mustit_pipeline.crawling.planning import PRODUCT_TYPES, plan_pages, plan_products
from mustit_pipeline.crawling.recovery import release_expired
from mustit_pipeline.crawling.results import ResultStore, TaskResult
from mustit_pipeline.crawling.sql import executions, leases, tasks
from mustit_pipeline.crawling.sql.tasks import TaskHome
from mustit_pipeline.crawling.steering import open_or_join
from mustit_pipeline.delivery.sql.settling import settle
from mustit_pipeline.domain.states import ExecutionStatus, TaskStatus, TaskType
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.marketplace.endpoints import Endpoints
from mustit_pipeline.marketplace.parsing import parse_listing
from mustit_pipeline.outbox.sql import outbox
from mustit_pipeline.outbox.sql.outbox import Settlement
from mustit_pipeline.settings import Settings
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.integration.catalog.shelf import Shelf
from mustit_pipeline_tests.integration.crawling.checks import check_outcomes, number
from mustit_pipeline_tests.integration.crawling.child import wait_until
from mustit_pipeline_tests.integration.crawls import register
from mustit_pipeline_tests.integration.rows import MONTH, add_execution, add_task
from mustit_pipeline_tests.unit.marketplace import bodies

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


@pytest.mark.parametrize("beside", ["store", "release"])
def test_a_crawl_is_cancelled_while_a_worker_writes_its_tasks(
    beside: str, database: Database, make_settings: MakeSettings
) -> None:
    settings = make_settings()
    register(database, "s")
    stored = open_or_join(database, SellerId("s"), triggered_by="test", now=utc_now()).stored
    endpoints = Endpoints.from_settings(settings)
    with database.transaction() as connection:
        connection.execute(text("UPDATE crawling_schedule_executions SET status = 'RUNNING'"))
        tasks.add(connection, stored.home, plan_products(endpoints, dict.fromkeys(range(1, 11), 0)))
        taken = leases.claim(
            connection, stored.home, PRODUCT_TYPES, owner="me", limit=99, lease_seconds=-1, max_retries=2
        )
        # The next release of each one fails it, and that is counted in the execution.
        connection.execute(text("UPDATE crawler_tasks SET release_count = 4"))
    for lease in taken:
        lease.task.complete(utc_now())
    results = [TaskResult(lease, body="[]") for lease in taken]
    store = ResultStore(database, settings, endpoints)
    acts: dict[str, Callable[[], object]] = {
        "store": lambda: store.store(results).completed,
        "release": lambda: release_expired(database, settings, utc_now()),
    }
    with ThreadPoolExecutor(1) as thread:
        with database.transaction() as connection:
            held = executions.get(connection, stored.execution.id, lock=True)
            writing = thread.submit(acts[beside])
            wait_until(lambda: writing.done() or number(database, WAITING))
            # Renewing waits for no other, whichever has the rows.
            held.execution.cancel(utc_now())
            tasks.cancel_open(connection, held.home)
            with database.transaction() as other:
                assert leases.heartbeat(other, taken, 30) == set()
            executions.save(connection, held.execution)
        assert writing.result(60) == 0
    rows = check_outcomes(database, stored.execution.id)
    assert {row.error_code for row in rows.values()} == {"CANCELLED"}


@pytest.mark.parametrize("who", ["worker", "relay"])
def test_products_of_many_sellers_are_locked_in_the_order_of_their_sellers(
    who: str, database: Database, make_settings: MakeSettings
) -> None:
    """A worker of all crawls went by execution and the relay by seller: each could hold what the other waited for."""
    shelves = Shelf(database, "Z"), Shelf(database, "a")
    for shelf in shelves:
        shelf.crawl(1)
    act = pages_to_store(shelves, make_settings()) if who == "worker" else deliveries_to_settle(database)
    lock = text("SELECT FROM products WHERE seller_id = :seller FOR UPDATE SKIP LOCKED")
    with ThreadPoolExecutor(1) as thread:
        with database.transaction() as connection:
            assert connection.execute(lock, {"seller": "Z"}).rowcount == 1
            writing = thread.submit(act)
            wait_until(lambda: writing.done() or number(database, WAITING))
            # It waits for the first seller's product, and has not got the second one's yet.
            with database.transaction() as other:
                assert other.execute(lock, {"seller": "a"}).rowcount == 1
        assert writing.result(60) == 2


def pages_to_store(shelves: Sequence[Shelf], settings: Settings) -> Callable[[], int]:
    """One page of each seller, whose executions come in the other order than the sellers."""
    endpoints = Endpoints.from_settings(settings)
    page = bodies.encoded(bodies.listing(bodies.listing_item(itemNo=1), count=1))
    results: list[TaskResult] = []
    for place, shelf in enumerate(reversed(shelves), 1):
        shelf.open()
        shelf.change(
            "UPDATE crawling_schedule_executions SET execution_id = :id WHERE execution_id = :e",
            id=UUID(int=place),
            e=shelf.stored.home.execution_id,
        )
        home = shelf.open().home
        with shelf.database.transaction() as connection:
            tasks.add(connection, home, plan_pages(endpoints, SellerId(shelf.seller_id), 1, None))
            [lease] = leases.claim(
                connection, home, [TaskType.MINISHOP], owner="me", limit=1, lease_seconds=60, max_retries=2
            )
        lease.task.complete(utc_now())
        results.append(TaskResult(lease, body=page.decode(), page=parse_listing(page)))
    store = ResultStore(shelves[0].database, settings, endpoints)
    return lambda: store.store(results).completed


def deliveries_to_settle(database: Database) -> Callable[[], int]:
    """Everything that waits has been delivered, in whatever order."""
    with database.transaction() as connection:
        claimed, _ = outbox.claim(connection, owner="me", limit=9, lease_seconds=60)
    ended = sorted((Settlement(one, 200) for one in claimed), key=lambda one: one.event.seller_id)

    def settled() -> int:
        with database.transaction() as connection:
            return len(settle(connection, ended[::-1]))

    return settled


def test_a_lease_that_ends_while_others_are_taken_back_waits_for_its_execution_to_be_locked(
    database: Database,
) -> None:
    """Its task was taken without its execution, against the order in which everybody locks them."""
    register(database, "a", "b")
    with database.transaction() as connection:
        homes = [TaskHome(add_execution(connection, ExecutionStatus.RUNNING, one), one, MONTH) for one in "ab"]
        ended, ends = (add_task(connection, home, TaskStatus.IN_PROGRESS, 1, expires="-1 s") for home in homes)
        later = "UPDATE crawler_tasks SET lease_expires_at = now() + interval '1 hour' WHERE task_id = :id"
        connection.execute(text(later), {"id": ends})

    def end_it(_: object, __: object, statement: str, *___: object) -> None:
        if "SKIP LOCKED" in statement:
            with database.transaction() as other:
                other.execute(text("UPDATE crawler_tasks SET lease_expires_at = now() - interval '1 s'"))

    with database.transaction() as connection:
        event.listen(connection, "before_cursor_execute", end_it)
        first = leases.take_expired(connection, limit=9, max_retries=2)
        event.remove(connection, "before_cursor_execute", end_it)
        second = leases.take_expired(connection, limit=9, max_retries=2)
    assert [lease.task.id.value for lease in first] == [ended]
    assert {lease.task.id.value for lease in second} == {ended, ends}
