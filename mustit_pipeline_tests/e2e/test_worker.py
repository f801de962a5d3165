"""`mustit worker` as a process of its own: any number of them share the work, and each stops cleanly."""

import json
import signal
import subprocess
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from uuid import UUID

import pytest

from mustit_pipeline.catalog.processing import process
from mustit_pipeline.crawling.crawl import Crawl
from mustit_pipeline.crawling.planning import PRODUCT_TYPES
from mustit_pipeline.crawling.steering import find, open_or_join
from mustit_pipeline.domain.values import ExecutionId, SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline_tests.e2e.asking import explained, settings_of
from mustit_pipeline_tests.e2e.conftest import World, opened_world
from mustit_pipeline_tests.integration.crawling.checks import check_outcomes, number

PATIENCE_SECONDS = 60.0
READY = "waiting for tasks"
HELD = """
    SELECT count(*) FROM crawler_tasks WHERE seller_id = :seller AND lease_owner IS NOT NULL
"""


@contextmanager
def working(world: World, *arguments: str, **changed: str) -> Generator[subprocess.Popen[str]]:
    """A worker that is gone at the end, whatever happened to it."""
    process = world.mustit.start("worker", *arguments, **changed)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Generator[World]:
    """A home of its own: a worker takes whatever any crawl has to do, and other tests leave crawls open."""
    with opened_world(tmp_path_factory.mktemp("workers")) as opened:
        yield opened


def eventually(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.02)


def swept(world: World, seller: str, products: int) -> Crawl:
    """A crawl whose listing has been seen, so that there is something to take."""
    world.register(seller, products)
    opened = open_or_join(world.database, SellerId(seller), triggered_by="test", now=utc_now())
    work = Crawl(world.database, settings_of(world), opened.stored)
    work.sweep(30)
    world.market.reset_audit()
    return work


def fetched(world: World) -> dict[str, int]:
    urls = world.market.requested_urls()
    return {url: times for url, times in urls.items() if "/item/" in url or "/options" in url}


def test_two_workers_beside_a_crawl_share_its_tasks_and_every_request_is_made_once(world: World) -> None:
    seller, products = "shared", 120
    world.register(seller, products)
    world.market.reset_audit()
    world.market.settings(latencyMs=100)
    limits = {"MUSTIT_MAX_CONCURRENT_REQUESTS": "4", "MUSTIT_PAGE_SIZE": "30"}
    with ExitStack() as stack:
        workers = [stack.enter_context(working(world, **limits)) for _ in range(2)]
        for process in workers:
            assert process.stderr is not None
            while READY not in process.stderr.readline():
                assert process.poll() is None
        crawled = explained(world, "crawl", seller, "--json", **limits)
        for process in workers:
            process.send_signal(signal.SIGTERM)
        told = [process.communicate(timeout=30)[0] for process in workers]
    world.market.settings(latencyMs=0)

    assert crawled.code == 0, crawled.err
    total = 4 + 2 * products
    assert (crawled.document["completedTasks"], crawled.document["failedTasks"]) == (total, 0)
    assert crawled.document["requests"] == 1 + total
    assert crawled.document["changes"] == {"CREATED": products}
    assert [process.returncode for process in workers] == [0, 0]
    shares = [int(out.split()[0]) for out in told]
    assert min(shares) > 0
    assert sum(shares) < total
    assert len(fetched(world)) == 2 * products
    assert set(fetched(world).values()) == {1}
    check_outcomes(world.database, ExecutionId(UUID(crawled.document["executionId"])))


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_is_told_to_stop_ends_what_is_in_flight_and_leaves_no_lease(
    world: World, how: signal.Signals
) -> None:
    work = swept(world, f"stopped by {how.name}", 30)
    world.market.settings(latencyMs=1000)
    with working(world, MUSTIT_MAX_CONCURRENT_REQUESTS="3", MUSTIT_GRACE_SECONDS="20") as process:
        eventually(lambda: len(fetched(world)) >= 3)
        process.send_signal(how)
        out, err = process.communicate(timeout=30)
    world.market.settings(latencyMs=0)

    assert (process.returncode, "Traceback" in err) == (0, False), err
    assert READY in err
    made = len(fetched(world))
    assert out == f"{made} tasks completed, 0 failed, {made} requests, 0 of them throttled\n"
    assert number(world.database, HELD, seller=work.stored.home.seller_id) == 0
    rows = check_outcomes(world.database, work.stored.execution.id, ended=False)
    assert {(row.status, row.retry_count, row.release_count) for row in rows.values()} == {
        ("COMPLETED", 0, 0),
        ("PUBLISHED", 0, 0),
    }
    end(world, work)


def test_a_worker_gives_back_what_does_not_end_in_the_grace_time(world: World) -> None:
    work = swept(world, "hanging", 8)
    fault = world.market.fault("slow", "detail", sellerId="hanging", seconds=8)
    changed = {"MUSTIT_MAX_CONCURRENT_REQUESTS": "8", "MUSTIT_GRACE_SECONDS": "0.5"}
    with working(world, "--json", **changed) as process:
        eventually(lambda: len(fetched(world)) >= 8)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
        took = time.monotonic() - began
    world.market.clear_faults(fault)

    assert process.returncode == 0, err
    assert took < 6
    assert json.loads(out).keys() == {"completedTasks", "failedTasks", "requests", "throttled"}
    assert number(world.database, HELD, seller="hanging") == 0
    check_outcomes(world.database, work.stored.execution.id, ended=False)
    end(world, work)


def test_a_worker_with_a_time_limit_ends_by_itself(world: World) -> None:
    told = explained(world, "worker", "--seconds", "0.2", "--json")

    assert told.code == 0, told.err
    assert set(told.document.values()) == {0}
    assert explained(world, "worker", "--seconds", "-1").code == 2


def end(world: World, work: Crawl) -> None:
    """Nothing of it is left for the workers of other tests."""
    work.fetch_products([*PRODUCT_TYPES], 60)
    assert not find(world.database, work.stored.execution.id).execution.remaining
    process(world.database, work.stored.execution.seller_id, now=utc_now)
    work.end()
