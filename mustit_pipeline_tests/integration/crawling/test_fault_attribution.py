"""A seller whose pages fail costs the pool a little health and another seller nothing; an agent that fails rests.

A URL that is always throttled costs the pool nothing; an agent that is always throttled rests.
"""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from mustit_pipeline.agents import roster
from mustit_pipeline.crawling.crawl import Crawl
from mustit_pipeline.crawling.planning import PRODUCT_TYPES
from mustit_pipeline.crawling.steering import open_or_join
from mustit_pipeline.domain.states import AgentStatus, ExecutionStatus, SweepStatus
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.simulator.control import MarketplaceControl
from mustit_pipeline.simulator.process import RunningSimulator
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.integration.agents.servers import empty_pool
from mustit_pipeline_tests.integration.crawling.checks import check_outcomes, number
from mustit_pipeline_tests.integration.crawling.child import wait_until
from mustit_pipeline_tests.integration.crawls import crawl, register

POOL = "SELECT count(*) FILTER (WHERE status = 'AVAILABLE' AND health = 100 AND reason IS NULL) FROM user_agents"
HEALTH_LOST = "SELECT 100 * count(*) - sum(health) FROM user_agents"


@pytest.mark.parametrize(
    ("kind", "code", "harmed"),
    [
        # JSON is an answer, whatever its shape.
        ("wrong_shape", "EXTERNAL_MALFORMED_BODY", False),
        ("html", "EXTERNAL_MALFORMED_BODY", True),
        ("5xx", "EXTERNAL_SERVER_ERROR", True),
        ("token_refused", "EXTERNAL_UNAUTHORIZED", True),
    ],
)
def test_a_seller_whose_products_always_fail_suspends_no_agent_and_another_seller_is_crawled(
    kind: str,
    code: str,
    harmed: bool,
    database: Database,
    make_settings: MakeSettings,
    marketplace: RunningSimulator,
    market: MarketplaceControl,
) -> None:
    """Each failure was an agent's fault: all of them rested for an hour, and no seller got anything."""
    settings = make_settings(base_url=marketplace.url)
    market.add_seller("bad", 40)
    market.add_seller("good", 10)
    register(database, "bad", "good")
    empty_pool(database, 10)
    opened = open_or_join(database, SellerId("bad"), triggered_by="test", now=utc_now())
    bad = Crawl(database, settings, opened.stored)
    bad.sweep(60)
    for endpoint in ("detail", "options"):
        market.fault(kind, endpoint, sellerId="bad")

    bad.fetch_products(PRODUCT_TYPES, 60)

    rows = check_outcomes(database, bad.stored.execution.id)
    assert [row.error_code for row in rows.values() if row.status == "FAILED"] == [code] * 80
    with database.reading() as connection:
        pool = roster.pool_status(connection, settings, utc_now())
    assert (pool.available, pool.circuit) == (pool.total, "closed")
    assert (number(database, HEALTH_LOST) > 0) is harmed
    good = crawl(database, settings, "good").stored
    assert (good.execution.status, good.execution.failed_tasks) == (ExecutionStatus.COMPLETED, 0)


@pytest.mark.parametrize("kind", ["5xx", "html"])
def test_a_host_that_fails_every_call_opens_the_breaker_and_tasks_wait(
    kind: str,
    database: Database,
    make_settings: MakeSettings,
    marketplace: RunningSimulator,
    market: MarketplaceControl,
) -> None:
    settings = make_settings(base_url=marketplace.url, max_concurrent_requests=10)
    market.add_seller("s", 200)
    register(database, "s")
    empty_pool(database, 10)
    opened = open_or_join(database, SellerId("s"), triggered_by="test", now=utc_now())
    work = Crawl(database, settings, opened.stored)
    work.sweep(60)
    market.fault(kind, "api")

    def is_open() -> bool:
        work.fetch_products(PRODUCT_TYPES, 1)
        with database.reading() as connection:
            return roster.pool_status(connection, settings, utc_now()).circuit == "open"

    wait_until(is_open)
    assert work.remaining(PRODUCT_TYPES) > 250


def test_an_agent_that_fails_while_others_are_answered_rests_by_the_usual_numbers(
    database: Database, make_settings: MakeSettings, marketplace: RunningSimulator, market: MarketplaceControl
) -> None:
    settings = make_settings(base_url=marketplace.url)
    market.add_seller("s", 300)
    register(database, "s")
    empty_pool(database, 6)
    opened = open_or_join(database, SellerId("s"), triggered_by="test", now=utc_now())
    Crawl(database, settings, opened.stored).sweep(60)
    market.fault("5xx", "api", agents=["agent-000"])

    stored = crawl(database, settings, "s").stored

    assert stored.execution.status is ExecutionStatus.COMPLETED
    with database.reading() as connection:
        agents = {agent.user_agent: agent for agent in roster.list_agents(connection)}
    bad = agents.pop("agent-000")
    assert (bad.status, bad.health) == (AgentStatus.SUSPENDED, 20)
    assert {(agent.status, agent.health) for agent in agents.values()} == {(AgentStatus.AVAILABLE, 100)}
    # From 100 to below 30 by tens, whatever it was asked for.
    assert [fault["used"] for fault in market.faults()] == [8]


def poison(market: MarketplaceControl, items: list[int]) -> None:
    for item in items:
        for endpoint in ("detail", "options"):
            market.fault("429", endpoint, itemNo=item, retryAfter="3600")


def test_three_products_that_are_always_throttled_cost_no_agent_and_another_seller_nothing(
    database: Database, make_settings: MakeSettings, marketplace: RunningSimulator, market: MarketplaceControl
) -> None:
    """41 of 50 agents were suspended and the breaker opened, or the host was paused again and again."""
    settings = make_settings(base_url=marketplace.url)
    market.add_seller("bad", 40)
    market.add_seller("good", 40)
    register(database, "bad", "good")
    empty_pool(database, 50)
    items = [product["itemNo"] for product in market.products("bad")]
    poison(market, items[::15])

    for _ in range(2):
        # The second time they are all that is left to publish, and come first.
        with ThreadPoolExecutor(2) as both:
            bad, good = (
                one.stored.execution for one in both.map(lambda s: crawl(database, settings, s), ("bad", "good"))
            )

        assert (bad.status, bad.failed_tasks) == (ExecutionStatus.COMPLETED, 2 * 3)
        assert (good.status, good.failed_tasks) == (ExecutionStatus.COMPLETED, 0)
        rows = check_outcomes(database, bad.id)
        failed = {(row.error_code, row.retry_count) for row in rows.values() if row.status == "FAILED"}
        assert failed == {("EXTERNAL_THROTTLED", 0)}
        with database.reading() as connection:
            pool = roster.pool_status(connection, settings, utc_now())
        assert (pool.circuit, pool.host_paused_until) == ("closed", None)
        assert number(database, POOL) == 50


def test_a_listing_page_that_is_always_throttled_fails_alone(
    database: Database, make_settings: MakeSettings, marketplace: RunningSimulator, market: MarketplaceControl
) -> None:
    settings = make_settings(base_url=marketplace.url, page_size=5)
    market.add_seller("s", 20)
    register(database, "s")
    market.fault("429", "listing", pageNo=2)

    stored = crawl(database, settings, "s").stored

    assert (stored.execution.status, stored.execution.failed_tasks) == (ExecutionStatus.COMPLETED, 1)
    assert stored.execution.completed_tasks == 3 + 2 * 15
    assert stored.sweep_status is SweepStatus.INCOMPLETE
    assert number(database, "SELECT count(*) FROM user_agents WHERE status <> 'AVAILABLE'") == 0


def test_an_agent_that_is_throttled_everywhere_rests_for_as_long_as_is_asked_and_no_other_does(
    database: Database, make_settings: MakeSettings, marketplace: RunningSimulator, market: MarketplaceControl
) -> None:
    settings = make_settings(base_url=marketplace.url)
    market.add_seller("s", 100)
    register(database, "s")
    empty_pool(database, 20)
    # Beside products that are throttled for all: more than rest on suspicion at once.
    poison(market, [product["itemNo"] for product in market.products("s")[:10]])
    market.fault("429", "api", agents=["agent-000"], retryAfter="7200")

    stored = crawl(database, settings, "s").stored
    # Where many URLs are refused at once no agent pays; the next crawl finds it out at the latest.
    market.clear_faults()
    market.fault("429", "api", agents=["agent-000"], retryAfter="7200")
    again = crawl(database, settings, "s").stored

    assert (stored.execution.status, stored.execution.failed_tasks) == (ExecutionStatus.COMPLETED, 20)
    assert again.execution.failed_tasks == 0
    with database.reading() as connection:
        agents = {agent.user_agent: agent for agent in roster.list_agents(connection)}
    bad = agents.pop("agent-000")
    assert bad.status is AgentStatus.SUSPENDED
    assert bad.suspended_until is not None
    assert bad.suspended_until - utc_now() > timedelta(minutes=115)
    assert {agent.status for agent in agents.values()} == {AgentStatus.AVAILABLE}


def test_a_host_that_throttles_all_is_paused_and_no_agent_is_charged(
    database: Database, make_settings: MakeSettings, marketplace: RunningSimulator, market: MarketplaceControl
) -> None:
    settings = make_settings(base_url=marketplace.url)
    market.add_seller("s", 40)
    register(database, "s")
    empty_pool(database, 50)
    work = Crawl(database, settings, open_or_join(database, SellerId("s"), triggered_by="test", now=utc_now()).stored)
    work.sweep(60)
    market.fault("storm", "api", retryAfter=None)

    with ThreadPoolExecutor(1) as background:
        working = background.submit(work.fetch_products, PRODUCT_TYPES, 60)
        wait_until(lambda: number(database, "SELECT count(*) FROM pool_state WHERE paused_until IS NOT NULL"))
        market.clear_faults()
        working.result()

    assert work.end().execution.failed_tasks == 0
    assert number(database, "SELECT count(*) FROM user_agents WHERE status <> 'AVAILABLE'") == 0
