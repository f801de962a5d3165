"""What is done to the pipeline, and what must hold afterwards: each returns the numbers that it has checked."""

from collections.abc import Callable
from dataclasses import dataclass

from mustit_pipeline.delivery.relay import relay
from mustit_pipeline_tests.faults.backlog import replay_failed
from mustit_pipeline_tests.faults.invariants import check_all
from mustit_pipeline_tests.faults.world import World
from mustit_pipeline_tests.integration.crawls import crawl, register

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


def product_server_misbehaves(world: World, size: Size) -> Numbers:
    """Every third call fails, answers come too late, connections drop after applying: one effect each, in order."""
    settings = world.with_settings(relay_longest_backoff_seconds=0.5, product_server_breaker_seconds=0.5)
    world.market.add_seller(SELLER, size.products)
    register(world.database, SELLER)
    crawl(world.database, settings, SELLER)
    world.receiver.fault("status", "events", share=0.33, status=503)
    world.receiver.fault("drop_after", "events", share=0.1)
    relay(world.database, settings, patience_seconds=5)
    world.market.random_changes(SELLER, size.products // 4)
    crawl(world.database, settings, SELLER)
    relay(world.database, settings, patience_seconds=5)
    struck = world.receiver.audit()["faults"]
    if not struck.get("status") or not struck.get("drop_after"):
        raise AssertionError(f"too few faults struck: {struck}")
    world.receiver.clear_faults()
    replay_failed(world.database)
    return {"products": size.products, "struck": sum(struck.values()), "effects": check_all(world, SELLER, settings)}


SCENARIOS: tuple[Callable[[World, Size], Numbers], ...] = (product_server_misbehaves,)
