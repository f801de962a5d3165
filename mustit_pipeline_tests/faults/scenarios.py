"""What is done to the pipeline, and what must hold afterwards: each returns the numbers that it has checked."""

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context

from mustit_pipeline.clock import utc_now
from mustit_pipeline.crawling.executions import find, open_or_join
from mustit_pipeline.delivery.relay import relay
from mustit_pipeline.domain.states import ExecutionStatus
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.settings import Settings
from mustit_pipeline.store import outbox
from mustit_pipeline.store.database import open_database
from mustit_pipeline_tests.faults.world import World
from mustit_pipeline_tests.integration.crawling.checks import check_outcomes
from mustit_pipeline_tests.integration.crawling.child import crawling
from mustit_pipeline_tests.integration.crawls import crawl, differences, register

SELLER = "한글 & a/b 50%"
Numbers = dict[str, int]


@dataclass(frozen=True)
class Size:
    """How much of it: a minute or more for the long suite, seconds for every test run."""

    kills: int
    products: int
    latency_ms: int


LONG = Size(kills=20, products=600, latency_ms=150)
QUICK = Size(kills=3, products=60, latency_ms=300)


def crawl_killed_at_random_moments(world: World, size: Size) -> Numbers:
    """kill -9 of the crawl again and again: every product is fetched, nothing is stored twice, little is repeated."""
    world.market.add_seller(SELLER, size.products)
    world.market.settings(latencyMs=size.latency_ms)
    register(world.database, SELLER)
    settings = world.with_settings(max_concurrent_requests=10, page_size=100)
    opened = open_or_join(world.database, SellerId(SELLER), triggered_by="chaos", now=utc_now()).stored.execution.id
    moments = random.Random(20)
    kills = 0
    while kills < size.kills and find(world.database, opened).execution.is_open:
        with crawling(settings, SELLER) as process:
            time.sleep(moments.uniform(0.6, 2.5))
            kills += process.poll() is None
            process.kill()
    if not kills:
        raise AssertionError("the crawl was over before its first kill: it proves nothing, make it longer")
    if find(world.database, opened).execution.is_open:
        crawl(world.database, settings, SELLER)
    ended = find(world.database, opened)
    if ended.execution.status is not ExecutionStatus.COMPLETED:
        raise AssertionError(f"the crawl ended {ended.execution.status}")
    rows = check_outcomes(world.database, ended.execution.id)
    calls = Counter({url: n for url, n in world.market.requested_urls().items() if "mustit-api" in url})
    repeated = sum(times - 1 for times in calls.values())
    allowed = kills * (2 * settings.max_concurrent_requests + 1)
    if repeated > allowed:
        raise AssertionError(f"{repeated} requests were repeated, {allowed} may be")
    _deliver_and_compare(world, settings)
    return {"kills": kills, "tasks": len(rows), "requests repeated": repeated, "allowed": allowed}


def product_server_misbehaves(world: World, size: Size) -> Numbers:
    """Every third call fails, answers come too late, connections drop after applying: one effect each, in order."""
    # A third of all answers being failures, some event meets five in a row; that end is another test's.
    settings = world.with_settings(outbox_max_retries=50)
    world.market.add_seller(SELLER, size.products)
    register(world.database, SELLER)
    crawl(world.database, world.settings, SELLER)
    world.receiver.fault("status", "events", share=0.33, status=503)
    world.receiver.fault("drop_after", "events", share=0.1)
    relay(world.database, settings, patience_seconds=5, cooldown_seconds=0.5)
    world.market.random_changes(SELLER, size.products // 4)
    crawl(world.database, world.settings, SELLER)
    relay(world.database, settings, patience_seconds=5, cooldown_seconds=0.5)
    world.receiver.clear_faults()
    _deliver_and_compare(world, settings)
    return {"products": size.products, "effects": _check_effects(world)}


def relays_killed_at_random_moments(world: World, size: Size) -> Numbers:
    """Two relays at once, killed again and again: the same."""
    world.market.add_seller(SELLER, size.products)
    register(world.database, SELLER)
    crawl(world.database, world.settings, SELLER)
    world.receiver.fault("slow", "events", seconds=0.05)
    moments = random.Random(7)
    spawn = get_context("spawn")
    for _ in range(size.kills):
        relays = [spawn.Process(target=_relay_once, args=(world.settings,), daemon=True) for _ in range(2)]
        for process in relays:
            process.start()
        time.sleep(moments.uniform(1.0, 2.5))
        for process in relays:
            process.kill()
            process.join()
    world.receiver.clear_faults()
    _deliver_and_compare(world, world.settings)
    return {"kills": 2 * size.kills, "effects": _check_effects(world)}


def _relay_once(settings: Settings) -> None:
    relay(open_database(settings), settings, lease_seconds=1.0)


def _deliver_and_compare(world: World, settings: Settings) -> None:
    """Send until nothing waits; then the product server must equal the marketplace."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        relay(world.database, settings, patience_seconds=10, cooldown_seconds=0.5)
        with world.database.reading() as connection:
            counts = outbox.counts(connection)
        if counts.failed:
            raise AssertionError(f"{counts.failed} events are FAILED")
        if not counts.waiting + counts.sending:
            break
    found = differences(world.market, world.receiver, SELLER)
    if found:
        raise AssertionError(f"{len(found)} products differ, such as {next(iter(found.items()))}")


def _check_effects(world: World) -> int:
    """Each version took effect once, and versions only grew."""
    newest: dict[int, int] = {}
    log = world.receiver.log()
    for effect in log:
        if effect.version <= newest.get(effect.item_no, 0):
            raise AssertionError(f"item {effect.item_no}: version {effect.version} after {newest[effect.item_no]}")
        newest[effect.item_no] = effect.version
    return len(log)


SCENARIOS: tuple[Callable[[World, Size], Numbers], ...] = (
    crawl_killed_at_random_moments,
    product_server_misbehaves,
    relays_killed_at_random_moments,
)
