"""How the system that this one replaces lost work, blocked it, or burnt its retries; docs/faults.md has the proofs."""

import threading
from collections import Counter
from functools import partial

import pytest
from sqlalchemy import text

from mustit_pipeline.agents import roster
from mustit_pipeline.aws.setup import make_queues
from mustit_pipeline.catalog.processing import process
from mustit_pipeline.crawling.crawl import Crawl
from mustit_pipeline.crawling.planning import PRODUCT_TYPES, planned_status
from mustit_pipeline.crawling.queue import execution_queue
from mustit_pipeline.crawling.recovery import release_expired
from mustit_pipeline.crawling.result_buffer import WorkReport
from mustit_pipeline.crawling.sql import leases
from mustit_pipeline.crawling.steering import open_or_join
from mustit_pipeline.delivery.relay import relay
from mustit_pipeline.domain.states import ExecutionStatus, SweepStatus, TaskType
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.settings import Settings
from mustit_pipeline.simulator.control import MarketplaceControl
from mustit_pipeline.simulator.process import RunningSimulator
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.faults.refusing import refusing
from mustit_pipeline_tests.integration.catalog.shelf import Shelf
from mustit_pipeline_tests.integration.crawling.checks import check_outcomes, task_rows
from mustit_pipeline_tests.integration.crawls import register

SELLER = "한글 & a/b 50%"
PRODUCTS = 4
# A crawl ends when its work does; only a broken one takes that long.
SECONDS = 20.0


@pytest.fixture(params=["postgres", "sqs"])
def settings(request: pytest.FixtureRequest, make_settings: MakeSettings, marketplace: RunningSimulator) -> Settings:
    """Leases of a second: a crashed worker is missed soon."""
    make = partial(make_settings, base_url=marketplace.url, page_size=2, lease_seconds=1, total_timeout_seconds=5)
    if request.param == "postgres":
        return make()
    made = make(task_transport="sqs", aws_endpoint_url=request.getfixturevalue("strict").endpoint)
    make_queues(made)
    return made


@pytest.fixture
def opened(database: Database, settings: Settings, market: MarketplaceControl) -> Crawl:
    """An open execution of a seller with two pages of products."""
    market.add_seller(SELLER, PRODUCTS)
    register(database, SELLER)
    stored = open_or_join(database, SellerId(SELLER), triggered_by="test", now=utc_now()).stored
    return Crawl(database, settings, stored)


def go_on(crawl: Crawl) -> None:
    """What the next run does: sweep, then products, then their change sets, then the end."""
    crawl.sweep(SECONDS)
    crawl.fetch_products(PRODUCT_TYPES, SECONDS)
    process(crawl.database, crawl.stored.execution.seller_id, now=utc_now)
    crawl.end()


def assert_whole_crawl(crawl: Crawl) -> None:
    """Every page and every product of it was fetched and stored, once."""
    ended = crawl.reload()
    rows = task_rows(crawl.database, ended.execution.id)
    assert Counter(row.status for row in rows.values()) == {"COMPLETED": 2 + 2 * PRODUCTS}
    check_outcomes(crawl.database, ended.execution.id)
    assert (ended.execution.status, ended.sweep_status) == (ExecutionStatus.COMPLETED, SweepStatus.COMPLETE)


def states(crawl: Crawl) -> Counter[tuple[str, int, int]]:
    """Tasks by state, spent retries and releases."""
    rows = task_rows(crawl.database, crawl.stored.execution.id).values()
    return Counter((row.status, row.retry_count, row.release_count) for row in rows)


def change(database: Database, statement: str) -> None:
    with database.transaction() as connection:
        connection.execute(text(statement))


def test_defect_01_a_task_is_never_lost_because_publishing_failed(database: Database, opened: Crawl) -> None:
    """A page that was marked done although its products' tasks could not be published: they were lost for ever."""
    with refusing(database, "INSERT", "crawler_tasks", "NEW.task_type = 'PRODUCT_OPTION'"):
        opened.sweep(SECONDS)

    rows = task_rows(database, opened.stored.execution.id)
    # The second page may have been stopped before it was sent.
    untouched = planned_status(opened.settings).value
    assert {(row.status, row.bodies) for row in rows.values()} <= {("IN_PROGRESS", 0), (untouched, 0)}
    go_on(opened)
    assert_whole_crawl(opened)


def test_defect_01_a_published_task_that_no_worker_took_stays_in_the_queue(database: Database, opened: Crawl) -> None:
    opened.sweep(SECONDS)
    change(
        database,
        "UPDATE crawler_tasks SET created_at = created_at - interval '300 days', "
        "published_at = published_at - interval '300 days', available_at = available_at - interval '300 days'",
    )
    go_on(opened)
    assert_whole_crawl(opened)


def test_defect_02_a_task_whose_failing_fails_too_is_no_orphan(
    database: Database, opened: Crawl, market: MarketplaceControl
) -> None:
    opened.sweep(SECONDS)
    market.fault("5xx", "detail")
    with refusing(database, "UPDATE", "crawler_tasks", "NEW.status IN ('FAILED', 'RETRY')"):
        opened.fetch_products(PRODUCT_TYPES, SECONDS)
    assert ("IN_PROGRESS", 0, 0) in states(opened)

    market.clear_faults()
    go_on(opened)
    assert_whole_crawl(opened)


def test_defect_03_the_tasks_of_a_dead_worker_are_blocked_for_seconds_only(
    database: Database, opened: Crawl, make_settings: MakeSettings
) -> None:
    assert make_settings().lease_seconds <= 60
    opened.sweep(SECONDS)
    taken = execution_queue(database, opened.settings, opened.stored, PRODUCT_TYPES).claim(100)
    go_on(opened)

    assert len(taken) == 2 * PRODUCTS
    assert_whole_crawl(opened)


# Its leases are PostgreSQL's, whatever carries the tasks.
@pytest.mark.parametrize("settings", ["postgres"], indirect=True)
def test_defect_03_a_worker_that_lost_its_lease_writes_nothing(
    database: Database, opened: Crawl, settings: Settings
) -> None:
    opened.sweep(SECONDS)

    def take(owner: str, lease_seconds: float) -> list[leases.LeasedTask]:
        with database.transaction() as connection:
            return leases.claim(
                connection,
                opened.stored.home,
                [TaskType.PRODUCT_DETAIL],
                owner=owner,
                limit=100,
                lease_seconds=lease_seconds,
                max_retries=2,
            )

    late = take("late", 0.0)
    assert release_expired(database, settings, utc_now()) == len(late) == PRODUCTS
    present = take("present", 60.0)
    for lease in late:
        lease.task.complete(utc_now())
    with database.transaction() as connection:
        written = leases.save(connection, [(lease, 0.0) for lease in late])
        kept = leases.heartbeat(connection, late, 60.0)

    assert (written, kept) == (set(), set())
    assert len(present) == PRODUCTS
    assert states(opened)["IN_PROGRESS", 0, 1] == PRODUCTS


def test_defect_03_a_heartbeat_keeps_the_lease_of_a_worker_that_is_only_slow(
    database: Database, opened: Crawl, settings: Settings, market: MarketplaceControl
) -> None:
    opened.sweep(SECONDS)
    crawl = Crawl(database, settings.model_copy(update={"lease_seconds": 2}), opened.stored)
    market.fault("slow", "detail", seconds=4)
    over = threading.Event()

    def recover_all_the_time() -> None:
        while not over.wait(0.05):
            release_expired(database, settings, utc_now())

    recovering = threading.Thread(target=recover_all_the_time)
    recovering.start()
    try:
        crawl.fetch_products(PRODUCT_TYPES, SECONDS)
    finally:
        over.set()
        recovering.join()
    assert states(opened) == {("COMPLETED", 0, 0): 2 + 2 * PRODUCTS}
    assert {times for url, times in market.requested_urls().items() if "mustit-api" in url} == {1}


def test_defect_06_an_open_breaker_costs_no_task_a_retry(
    database: Database, opened: Crawl, market: MarketplaceControl
) -> None:
    """Neither the requests that were throttled when it opened, nor the wait until it closes, is held against a task."""
    opened.sweep(SECONDS)
    patient = opened.settings.model_copy(update={"breaker_min_available": 1.0, "lease_seconds": 0.6})
    crawl = Crawl(database, patient, opened.stored)
    market.fault("429", "api", retryAfter="0")
    # On a busy machine a slice may be over before its first answer.
    for _ in range(60):
        crawl.fetch_products(PRODUCT_TYPES, 0.3)
        # Every slice meets the throttling anew: a breaker that stays open would never let a task into its hands.
        change(database, "UPDATE pool_state SET paused_until = NULL, pause_level = 0, breaker_open_until = NULL")
        change(database, "UPDATE user_agents SET status = 'AVAILABLE', suspended_until = NULL, revision = revision + 1")
        if market.audit()["injected429"] >= 6:
            break
    assert market.audit()["injected429"] >= 6
    unharmed = states(opened)
    assert unharmed.pop(("COMPLETED", 0, 0)) == 2
    # In SQS a message may wait for another one of its product.
    assert unharmed.keys() <= {(planned_status(patient).value, 0, 0), ("PUBLISHED", 0, 0)}
    assert unharmed.total() == 2 * PRODUCTS

    with database.transaction() as connection:
        for agent in roster.list_agents(connection)[:49]:
            roster.block(connection, agent.agent_id)
    asked = market.audit()["requests"]
    opened.fetch_products(PRODUCT_TYPES, 1)
    with database.reading() as connection:
        assert roster.pool_status(connection, opened.settings, utc_now()).circuit == "open"
    assert market.audit()["requests"] == asked

    change(database, "UPDATE user_agents SET status = 'AVAILABLE', revision = revision + 1")
    change(database, "UPDATE pool_state SET breaker_open_until = NULL")
    market.clear_faults()
    go_on(opened)
    assert_whole_crawl(opened)
    assert {key[1:] for key in states(opened)} == {(0, 0)}


def test_defect_06_an_unreachable_product_server_costs_no_event_a_retry(
    database: Database, make_settings: MakeSettings
) -> None:
    shelf = Shelf(database)
    shelf.crawl(*range(1, 11))
    for _ in range(3):
        shelf.change("UPDATE product_outbox SET next_attempt_at = now()")
        shelf.change("UPDATE circuit_breakers SET open_until = now()")
        relay(database, make_settings(product_server_url="http://127.0.0.1:9"))
    assert shelf.rows("SELECT DISTINCT status, retry_count FROM product_outbox") == [
        {"status": "WAITING", "retry_count": 0}
    ]


@pytest.mark.parametrize("source", ["PRODUCT_DETAIL", "MINISHOP"])
def test_defect_09_no_task_succeeds_before_its_result_is_stored(source: str, database: Database, opened: Crawl) -> None:
    """A crash between a task's state and its body: the body was gone, and was never asked for again."""
    with refusing(database, "UPDATE", "crawling_schedule_executions", "NEW.completed_tasks > OLD.completed_tasks"):
        opened.sweep(SECONDS)
    check_outcomes(database, opened.stored.execution.id, ended=False)
    # COPY fires triggers too: the body's own row is what cannot be written.
    with refusing(database, "INSERT", "product_raw_data", f"NEW.source = '{source}'"):
        go_on(opened)
    check_outcomes(database, opened.stored.execution.id, ended=False)

    go_on(opened)
    assert_whole_crawl(opened)


def test_defect_11_one_failed_page_does_not_end_the_listing(
    database: Database, settings: Settings, market: MarketplaceControl
) -> None:
    market.add_seller(SELLER, 8)
    register(database, SELLER)
    stored = open_or_join(database, SellerId(SELLER), triggered_by="test", now=utc_now()).stored
    crawl = Crawl(database, settings.model_copy(update={"max_concurrent_requests": 1}), stored)
    faults = ["status"]

    def after_the_first_page(_: WorkReport) -> None:
        if faults:
            market.fault(faults.pop(), "listing", count=1, status=400)

    crawl.sweep(SECONDS, after_the_first_page)
    go_on(crawl)

    ended = crawl.reload()
    pages = [row for key, row in check_outcomes(database, ended.execution.id).items() if key.startswith("MINISHOP")]
    assert Counter(row.status for row in pages) == {"COMPLETED": 3, "FAILED": 1}
    assert (ended.execution.status, ended.sweep_status) == (ExecutionStatus.COMPLETED, SweepStatus.INCOMPLETE)
    assert ended.execution.completed_tasks == 3 + 2 * 6
