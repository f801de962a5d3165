"""The main path on the command line: register, crawl, relay; repeat, break, continue."""

import re
import signal
import time

import pytest
from sqlalchemy import text

from mustit_pipeline.crawling.crawl import Crawl
from mustit_pipeline.crawling.steering import deactivate_seller, open_or_join
from mustit_pipeline.domain.errors import NotFound
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline_tests.e2e.asking import ask, explained, settings_of
from mustit_pipeline_tests.e2e.conftest import NOWHERE, World
from mustit_pipeline_tests.integration.crawls import differences

ODD = "한글 & a/b 50%?#"
PRODUCTS = 8
CRAWL_KEYS = {
    "executionId",
    "sellerId",
    "status",
    "totalTasks",
    "completedTasks",
    "failedTasks",
    "requests",
    "changes",
}


def test_the_product_server_ends_equal_to_the_marketplace_and_repeating_it_sends_nothing(world: World) -> None:
    mustit = world.mustit
    world.market.add_seller(ODD, PRODUCTS)

    added = mustit("seller", "add", ODD, "--name", "[/red] 이름", "--interval", "6h", "--json")
    assert (added.code, added.document["sellerId"], added.document["interval"]) == (0, ODD, "6h"), added.err
    crawled = mustit("crawl", ODD, "--json")
    assert crawled.code == 0, crawled.err
    assert crawled.document.keys() == CRAWL_KEYS
    assert crawled.document["status"] == "COMPLETED"
    assert crawled.document["totalTasks"] == crawled.document["completedTasks"] == 1 + 2 * PRODUCTS
    assert crawled.document["changes"] == {"CREATED": PRODUCTS}
    relayed = mustit("relay", "--json")
    assert (relayed.code, relayed.document.keys()) == (0, {"sent", "superseded", "failed", "waiting"}), relayed.err
    assert (relayed.document["failed"], relayed.document["waiting"]) == (0, 0)
    effects = world.receiver.log()
    assert len([effect for effect in effects if effect.seller_id == ODD]) == PRODUCTS
    assert differences(world.market, world.receiver, ODD) == {}

    again = explained(world, "crawl", ODD)
    assert again.code == 0, again.err
    assert "changes: none" in again.out
    assert explained(world, "relay", "--json").document["sent"] == 0
    assert world.receiver.log() == effects

    shown = explained(world, "seller", "show", ODD)
    assert shown.code == 0, shown.err
    assert "[/red] 이름" in shown.out


def test_a_killed_crawl_goes_on_where_it_stopped_and_fetches_nothing_stored_twice(world: World) -> None:
    mustit, seller, products = world.mustit, "killed", 30
    world.register(seller, products)
    world.market.reset_audit()
    world.market.settings(latencyMs=300)
    with mustit.start("crawl", seller, MUSTIT_MAX_CONCURRENT_REQUESTS="2", MUSTIT_LEASE_SECONDS="2") as process:
        deadline = time.monotonic() + 60
        while _asked_for(world) < 12 and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
    before = _asked_for(world)
    world.market.settings(latencyMs=0)
    assert 12 <= before < 2 * products

    crawled = explained(world, "crawl", seller, "--json", MUSTIT_LEASE_SECONDS="2")

    assert crawled.code == 0, crawled.err
    assert crawled.document["completedTasks"] == 1 + 2 * products
    # In flight and unstored together are at most twice the concurrency.
    repeated = sum(times - 1 for url, times in world.market.requested_urls().items() if url != "/")
    assert repeated <= 2 * 2


def test_a_failed_task_makes_the_crawl_exit_1_and_the_rest_is_kept(world: World) -> None:
    seller = "half-broken"
    world.register(seller, 3)
    fault = world.market.fault("status", "options", itemNo=world.market.products(seller)[0]["itemNo"], status=404)

    crawled = explained(world, "crawl", seller, "--json")

    world.market.clear_faults(fault)
    assert crawled.code == 1
    assert (crawled.document["status"], crawled.document["failedTasks"]) == ("COMPLETED", 1)
    assert crawled.document["changes"] == {"CREATED": 2}


def test_a_dry_run_says_what_a_crawl_would_cost_and_opens_nothing(world: World) -> None:
    world.register("estimated", 12)

    told = explained(world, "crawl", "estimated", "--dry-run", "--json", MUSTIT_PAGE_SIZE="5")
    limited = ask(world, "crawl", "estimated", "--dry-run", "--limit", "2")

    assert told.code == limited.code == 0
    assert (told.document["products"], told.document["requests"]) == (12, 1 + 3 + 24)
    assert "2 products, 6 requests" in limited.out
    assert ask(world, "execution", "list", "--seller", "estimated", "--json").document == []
    with pytest.raises(NotFound, match="stranger"):
        ask(world, "crawl", "stranger", "--dry-run")


def test_a_dry_run_says_what_is_left_of_the_crawl_that_would_be_joined(world: World) -> None:
    """It promised a whole crawl where the real command would have joined one that was nearly done."""
    world.register("joined", 12)
    opened = open_or_join(world.database, SellerId("joined"), triggered_by="test", now=utc_now(), product_limit=10)
    world.market.reset_audit()

    unplanned = ask(world, "crawl", "joined", "--dry-run", "--limit", "2", "--json")
    asked = _asked_for(world, "pageSize=1&")
    Crawl(world.database, settings_of(world), opened.stored).sweep(60)
    with world.database.transaction() as connection:
        connection.execute(
            text("UPDATE crawling_schedule_executions SET completed_tasks = 15 WHERE execution_id = :id"),
            {"id": opened.stored.execution.id.value},
        )
    world.market.reset_audit()
    planned = ask(world, "crawl", "joined", "--dry-run")

    assert (unplanned.code, planned.code) == (0, 0)
    assert unplanned.document["joins"] == str(opened.stored.execution.id)
    assert (unplanned.document["products"], unplanned.document["requests"]) == (10, 1 + 1 + 20)
    assert asked == 1
    assert f"joins the open execution {opened.stored.execution.id}, which keeps its own --limit" in planned.out
    assert "10 products, 6 requests left" in planned.out
    assert world.market.requested_urls() == {}


def test_a_crawl_that_joins_a_limited_one_names_the_limit(world: World) -> None:
    world.register("limited", 4)
    open_or_join(world.database, SellerId("limited"), triggered_by="test", now=utc_now(), product_limit=2)

    joined = explained(world, "crawl", "limited")

    assert joined.code == 0
    assert re.search(r"Joined the open execution \S+; it fetches at most 2 products\.", joined.err)


def test_a_dry_run_is_refused_for_what_the_crawl_would_be_refused_for(world: World) -> None:
    for seller in ("switched-off", "put-off"):
        world.register(seller, 3)
    deactivate_seller(world.database, SellerId("switched-off"), utc_now())
    opened = open_or_join(world.database, SellerId("put-off"), triggered_by="test", now=utc_now())
    with world.database.transaction() as connection:
        connection.execute(
            text("UPDATE crawling_schedule_executions SET status = 'PAUSED' WHERE execution_id = :id"),
            {"id": opened.stored.execution.id.value},
        )
    world.market.reset_audit()

    inactive = explained(world, "crawl", "switched-off", "--dry-run", "--json")
    paused = explained(world, "crawl", "put-off", "--dry-run")

    assert (inactive.code, inactive.document["errorCode"]) == (1, "CONFLICT_SELLER_INACTIVE")
    assert paused.code == 1
    assert f"PAUSED: resume it with `mustit execution resume {opened.stored.execution.id}`" in paused.err
    assert world.market.requested_urls() == {}


def test_a_marketplace_that_does_not_answer_fails_the_crawl_with_its_reason(world: World) -> None:
    seller = "unreachable"
    world.register(seller, 1)

    crawled = explained(world, "crawl", seller, "--json", MUSTIT_BASE_URL=NOWHERE)

    assert crawled.code == 1
    assert crawled.document["status"] == "FAILED"
    assert "no connection could be opened" in crawled.document["message"]
    assert "no connection could be opened" in crawled.err


def _asked_for(world: World, part: str = "/item/") -> int:
    return sum(times for url, times in world.market.requested_urls().items() if part in url)
