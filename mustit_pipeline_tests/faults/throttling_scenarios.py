"""What a marketplace that answers 429 does to the pool of agents: nothing that it does not recover from by itself."""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from uuid import UUID

from mustit_pipeline.agents import roster
from mustit_pipeline.crawling.crawl import Crawl
from mustit_pipeline.crawling.steering import open_or_join
from mustit_pipeline.domain.states import ExecutionStatus
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.settings import Settings
from mustit_pipeline_tests.faults.engine_scenarios import COMPLETED, HURT
from mustit_pipeline_tests.faults.invariants import check_all
from mustit_pipeline_tests.faults.scenarios import LONG, SELLER, Numbers, Size
from mustit_pipeline_tests.faults.world import PATIENCE_SECONDS, World, wait_until
from mustit_pipeline_tests.integration.crawls import CrawlOutcome, crawl, differences, register

SUCCESS = 0.95
RESTED = "SELECT count(*) FROM user_agents WHERE throttled_at IS NOT NULL"
PAUSED = "SELECT count(*) FROM pool_state WHERE paused_until IS NOT NULL"
# The shortest pause is 2 s; anything near it is one, and nothing else comes near it.
QUIET_SECONDS = 1.5
THROTTLED_SHARE = 0.3
BLOCKED_SHARE = 0.82
POISONED_SHARES = (0.01, 0.1, 0.3)
LEAST_AVAILABLE = 0.9
HEALTHY = "healthy"
REFUSED = """
    SELECT count(*) FROM crawler_tasks t JOIN crawling_schedule_executions e USING (execution_id)
    WHERE e.seller_id = :seller AND t.status = 'FAILED' AND t.error_code = 'EXTERNAL_THROTTLED' AND t.retry_count = 0
"""
UNFINISHED = """
    SELECT count(*) FROM crawler_tasks t JOIN crawling_schedule_executions e USING (execution_id)
    WHERE e.seller_id = :seller AND t.status <> 'COMPLETED'
"""


def some_agents_throttled(world: World, size: Size) -> Numbers:
    """30 % of the agents get 429 for a minute: the others do the work, and those come back by themselves."""
    seconds = 60.0 if size == LONG else 5.0
    settings = world.with_settings(suspend_seconds=seconds / 4)
    world.market.add_seller(SELLER, size.products)
    world.market.settings(latencyMs=50)
    register(world.database, SELLER)
    everybody = _agents(world)
    throttled = sorted(everybody)[: round(THROTTLED_SHARE * len(everybody))]
    world.market.fault("storm", "any", agents=throttled, seconds=seconds, retryAfter="1")
    end = time.monotonic() + seconds
    outcomes: list[CrawlOutcome] = []
    while time.monotonic() < end:
        outcomes.append(crawl(world.database, settings, SELLER))
    during, rested = len(outcomes), world.number(RESTED)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while _available(world) < len(everybody):
        outcomes.append(crawl(world.database, settings, SELLER))
        if time.monotonic() > deadline:
            raise AssertionError(f"{_available(world)} of {len(everybody)} agents came back")
    struck = world.market.audit()["injected429"]
    if not struck or not rested:
        raise AssertionError(f"{struck} answers of 429 and {rested} agents at rest: this proves nothing")
    ended = [outcome.stored.execution for outcome in outcomes]
    if {execution.status for execution in ended} != {ExecutionStatus.COMPLETED}:
        raise AssertionError(f"not every crawl was completed: {[execution.status for execution in ended]}")
    good, bad = (sum(getattr(one, name) for one in ended) for name in ("completed_tasks", "failed_tasks"))
    if good < SUCCESS * (good + bad):
        raise AssertionError(f"{good} tasks succeeded, {bad} failed")
    _expect_pool_unburnt(world, settings)
    effects = check_all(world, SELLER, settings)
    return {"crawls": during, "tasks": good, "failed": bad, "answers of 429": struck} | {
        "agents at rest": rested,
        "effects": effects,
    }


def every_agent_throttled(world: World, size: Size) -> Numbers:
    """All agents get 429: it is the host that is left alone, after a few calls, and no agent is charged with it."""
    seconds = 60.0 if size == LONG else 3.0
    settings = world.with_settings(max_concurrent_requests=10)
    world.market.add_seller(SELLER, 100)
    world.market.settings(latencyMs=150)
    register(world.database, SELLER)
    # Good answers of a moment ago, and products that no agent can have fetched before the storm has begun.
    crawl(world.database, settings, SELLER, limit=15)
    opened_now = open_or_join(world.database, SellerId(SELLER), triggered_by="test", now=utc_now())
    Crawl(world.database, settings, opened_now.stored).sweep(PATIENCE_SECONDS)
    world.market.fault("storm", "any", seconds=seconds, retryAfter="1")
    began = time.time()
    with ThreadPoolExecutor(1) as background:
        crawled = background.submit(_crawl_to_its_end, world, settings)
        fewest, opened = _watch(world, settings, crawled)
        outcome = crawled.result()
    arrivals = [moment for moment in world.market.arrivals() if moment >= began]
    pauses = [(one, other) for one, other in pairwise(arrivals) if other - one >= QUIET_SECONDS]
    if not pauses or not world.number(PAUSED):
        raise AssertionError("there was no pause")
    # Each time that a pause is over the host is tried with what may be in flight at once, tokens and all.
    each = 3 * settings.max_concurrent_requests
    first = sum(moment <= pauses[0][0] for moment in arrivals)
    called = sum(moment <= began + seconds for moment in arrivals)
    if first > each or called > (len(pauses) + 1) * each:
        raise AssertionError(
            f"{called} calls to a host that throttles in {len(pauses)} pauses, {first} before the first"
        )
    execution = outcome.stored.execution
    if execution.status is not ExecutionStatus.COMPLETED or execution.completed_tasks < 2 * 100:
        raise AssertionError(f"the crawl ended {execution.status} with {execution.completed_tasks} tasks")
    if hurt := world.number(HURT):
        raise AssertionError(f"{hurt} tasks were hurt by it")
    if opened:
        raise AssertionError("the breaker opened: the host's throttling was held against the agents")
    _expect_pool_unburnt(world, settings)
    effects = check_all(world, SELLER, settings)
    return {"calls before the first pause": first, "pauses": len(pauses), "calls": called} | {
        "answers of 429": world.market.audit()["injected429"],
        "fewest agents available": fewest,
        "effects": effects,
    }


def breaker_opens_in_mid_crawl(world: World, size: Size) -> Numbers:
    """Too few agents are left: work waits for the breaker's trial, and no task pays for it with a try."""
    settings = world.with_settings(
        max_concurrent_requests=10, breaker_cooldown_seconds=20.0 if size == LONG else 2.0, lease_seconds=1
    )
    world.market.add_seller(SELLER, 60)
    world.market.settings(latencyMs=150)
    register(world.database, SELLER)
    blocked = sorted(_agents(world).values())[: round(BLOCKED_SHARE * len(_agents(world)))]
    with ThreadPoolExecutor(1) as background:
        crawled = background.submit(_crawl_to_its_end, world, settings)
        wait_until(lambda: world.number(COMPLETED) >= 30, "the crawl is under way")
        with world.database.transaction() as connection:
            for agent_id in blocked:
                roster.block(connection, agent_id)
        wait_until(partial(_is_open, world, settings), "the breaker opens")
        _, opened = _watch(world, settings, crawled)
        outcome = crawled.result()
    if outcome.stored.execution.status is not ExecutionStatus.COMPLETED or not opened:
        raise AssertionError(f"the crawl ended {outcome.stored.execution.status}")
    if hurt := world.number(HURT):
        raise AssertionError(f"{hurt} tasks were hurt by it")
    with world.database.transaction() as connection:
        for agent_id in blocked:
            roster.unblock(connection, settings, agent_id)
    # With so few it opened again after a while; now that all are back its next trial closes it for good.
    crawl(world.database, settings, SELLER)
    _expect_pool_unburnt(world, settings)
    return {"agents blocked": len(blocked), "effects": check_all(world, SELLER, settings)}


def some_products_throttled(world: World, size: Size) -> Numbers:
    """Products of one seller always get 429: they fail, and no other product or agent pays for it.

    Each crawl has a second copy beside it, and another seller is crawled at the same time.
    """
    settings = world.with_settings(max_concurrent_requests=25)
    world.market.settings(latencyMs=30)
    for seller in (SELLER, HEALTHY):
        world.market.add_seller(seller, size.products)
    register(world.database, SELLER, HEALTHY)
    items = [product["itemNo"] for product in world.market.products(SELLER)]
    refused, fewest = 0, len(_agents(world))
    # From the largest share to the smallest: what is refused now has not been delivered by an earlier crawl.
    for share in reversed(POISONED_SHARES if size == LONG else POISONED_SHARES[::2]):
        poisoned = items[: max(1, round(share * len(items)))]
        fault = world.market.fault("429", "api", items=poisoned)
        refused += 2 * len(poisoned)
        with ThreadPoolExecutor(3) as background:
            crawls = [
                background.submit(_crawl_to_its_end, world, settings, seller) for seller in (SELLER, SELLER, HEALTHY)
            ]
            for crawled in crawls:
                available, opened = _watch(world, settings, crawled)
                fewest = min(fewest, available)
                if opened or available < LEAST_AVAILABLE * len(_agents(world)):
                    raise AssertionError(
                        f"{share:.0%} of the products: {available} agents left, breaker open: {opened}"
                    )
            for crawled in crawls:
                crawled.result()
        if world.number(PAUSED):
            raise AssertionError(f"{share:.0%} of the products were taken for a storm of the host")
        if (failed := world.number(REFUSED, seller=SELLER)) != refused:
            raise AssertionError(f"{failed} tasks failed as throttled, not {refused}")
        if unfinished := world.number(UNFINISHED, seller=SELLER) - refused:
            raise AssertionError(f"{unfinished} tasks of other products did not succeed")
        if unfinished := world.number(UNFINISHED, seller=HEALTHY):
            raise AssertionError(f"{unfinished} tasks of the healthy seller did not succeed")
        world.deliver(settings)
        if set(differences(world.market, world.receiver, SELLER)) != set(poisoned):
            raise AssertionError(f"{share:.0%} of the products: others were not delivered")
        _expect_pool_unburnt(world, settings)
        world.market.clear_faults(fault)
    struck = world.market.audit()["injected429"]
    crawl(world.database, settings, SELLER)
    check_all(world, HEALTHY, settings)
    effects = check_all(world, SELLER, settings)
    return {"tasks refused": refused, "answers of 429": struck, "fewest agents available": fewest, "effects": effects}


def _crawl_to_its_end(world: World, settings: Settings, seller: str = SELLER) -> CrawlOutcome:
    """Slice after slice, as the sensor goes on with a crawl that a pause has outlasted."""
    deadline = time.monotonic() + 3 * PATIENCE_SECONDS
    while time.monotonic() < deadline:
        outcome = crawl(world.database, settings, seller)
        if not outcome.stored.execution.is_open:
            return outcome
    raise AssertionError("the crawl does not end")


def _agents(world: World) -> dict[str, UUID]:
    with world.database.reading() as connection:
        return {row.user_agent: row.agent_id for row in roster.list_agents(connection)}


def _pool(world: World, settings: Settings) -> roster.PoolStatus:
    with world.database.reading() as connection:
        return roster.pool_status(connection, settings, utc_now())


def _available(world: World) -> int:
    return _pool(world, world.settings).available


def _is_open(world: World, settings: Settings) -> bool:
    return _pool(world, settings).circuit != "closed"


def _watch(world: World, settings: Settings, crawled: "Future[CrawlOutcome]") -> tuple[int, bool]:
    """Look at the pool until the crawl has ended: the fewest agents that were available, and if the breaker opened."""
    fewest, opened = len(_agents(world)), False
    # A minute of 429s is followed by the pause that the last of them has earned.
    deadline = time.monotonic() + 3 * PATIENCE_SECONDS
    while not crawled.done():
        if time.monotonic() > deadline:
            raise AssertionError("the crawl does not end")
        pool = _pool(world, settings)
        fewest, opened = min(fewest, pool.available), opened or pool.circuit != "closed"
        time.sleep(0.05)
    return fewest, opened


def _expect_pool_unburnt(world: World, settings: Settings) -> None:
    pool = _pool(world, settings)
    if (pool.available, pool.circuit) != (pool.total, "closed"):
        raise AssertionError(f"the pool is burnt: {pool}")


THROTTLING_SCENARIOS: tuple[Callable[[World, Size], Numbers], ...] = (
    some_agents_throttled,
    every_agent_throttled,
    breaker_opens_in_mid_crawl,
    some_products_throttled,
)
