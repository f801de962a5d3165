"""What can be done to a crawl whose tasks SQS carries: its processes are killed, SQS repeats messages and fails."""

import json
import os
import random
import threading
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from sqlalchemy import text

from mustit_pipeline.aws.rule_relay import relay_rules
from mustit_pipeline.aws.setup import make_queues
from mustit_pipeline.aws.trigger_queue import TriggerQueue
from mustit_pipeline.crawling.dead_letters import DeadLetters
from mustit_pipeline.crawling.steering import deactivate_seller
from mustit_pipeline.domain.schedule import rule_name
from mustit_pipeline.domain.states import ExecutionStatus
from mustit_pipeline.domain.values import CrawlingInterval, SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.scheduling.triggers import take_triggers
from mustit_pipeline.sellers import registry
from mustit_pipeline.settings import Settings
from mustit_pipeline_tests.faults.children import working
from mustit_pipeline_tests.faults.engine_scenarios import crawl_killed_at_random_moments
from mustit_pipeline_tests.faults.invariants import check_all
from mustit_pipeline_tests.faults.scenarios import SELLER, Numbers, Size
from mustit_pipeline_tests.faults.world import World, fresh_world
from mustit_pipeline_tests.integration.crawls import crawl, register
from mustit_pipeline_tests.simulated_aws import VARIABLES, simulated_aws
from mustit_pipeline_tests.strict_aws import Fault, StrictAws, strict_aws

TARGET = "arn:aws:sqs:ap-northeast-2:123456789012:mustit-triggers"
QUEUE = "https://sqs.ap-northeast-2.amazonaws.com/123456789012/mustit-triggers"
EXECUTIONS = "SELECT count(*) FROM crawling_schedule_executions"
# moto takes longer for each message that it has ever had.
MOST_PRODUCTS = 300
# Of an agent in a window: fifty agents may make ten requests a second.
REQUESTS, WINDOW_SECONDS = 2, 10.0
PATIENCE_SECONDS = 600.0
CALLS = ("SendMessageBatch", "ReceiveMessage", "DeleteMessageBatch", "ChangeMessageVisibilityBatch")


@contextmanager
def _over_sqs(world: World) -> Generator[tuple[World, StrictAws]]:
    """The same world with a strict simulated AWS, and tasks that go over it."""
    with patch.dict(os.environ, VARIABLES), simulated_aws() as behind, strict_aws(behind) as aws:
        settings = world.with_settings(task_transport="sqs", aws_endpoint_url=aws.endpoint)
        make_queues(settings)
        yield replace(world, settings=settings), aws
        if aws.broken:
            raise AssertionError(f"rules of SQS were broken: {aws.broken}")


def _fewer(size: Size) -> Size:
    return replace(size, products=min(size.products, MOST_PRODUCTS))


def crawl_over_sqs_killed_at_random_moments(world: World, size: Size) -> Numbers:
    """kill -9 of a crawl over SQS again and again, each message coming three times: nothing is lost or stored twice."""
    with _over_sqs(world) as (changed, aws):
        aws.repeats = 2
        return crawl_killed_at_random_moments(changed, _fewer(size))


def workers_over_an_sqs_that_misbehaves(world: World, size: Size) -> Numbers:
    """Two `mustit worker` beside a crawl: calls fail, are throttled, lose their answer or half of their batch."""
    world.market.add_seller(SELLER, _fewer(size).products)
    register(world.database, SELLER)
    with _over_sqs(world) as (changed, aws), ExitStack() as stack:
        settings = changed.with_settings(max_concurrent_requests=10, page_size=100, lease_seconds=1)
        aws.repeats = 9
        for number in range(2):
            home = settings.home / f"worker-{number}"
            stack.enter_context(working(changed, settings.model_copy(update={"home": home})))
        struck = stack.enter_context(_misbehaving(aws))
        _crawl_whole(world, settings)
        asked = {url: times for url, times in world.market.requested_urls().items() if "mustit-api" in url}
        repeated = sum(times - 1 for times in asked.values())
        if repeated > 2 * settings.max_concurrent_requests:
            raise AssertionError(f"{repeated} requests were repeated")
        return {"struck": struck(), "repeated": repeated, "effects": check_all(changed, SELLER, settings)}


def a_sellers_life_over_eventbridge_and_sqs(world: World, size: Size) -> Numbers:
    """Registered, crawled twice by a rule's messages and two `mustit worker`, deactivated: as PostgreSQL would have it.

    Every message comes ten times, and there are more requests to make than agents may make in a window.
    """
    products = _fewer(size).products
    limits = {"requests_per_hour": REQUESTS, "window_seconds": WINDOW_SECONDS, "min_request_gap_seconds": 1.0}
    limits |= {"max_concurrent_requests": 10, "page_size": 50}
    world.market.settings(requestsPerWindow=REQUESTS, windowSeconds=WINDOW_SECONDS)
    with _over_sqs(world) as (changed, aws), ExitStack() as stack:
        settings = changed.with_settings(
            trigger="eventbridge", trigger_target_arn=TARGET, trigger_queue_url=QUEUE, **limits
        )
        make_queues(settings)
        aws.repeats = 9
        world.market.add_seller(SELLER, products)
        register(world.database, SELLER)
        relay_rules(world.database, settings, utc_now)
        rule, bridge = rule_name(SellerId(SELLER)), aws.client("events")
        _expect(bridge.describe_rule(Name=rule)["ScheduleExpression"] == "rate(1 day)", "the seller has a rule")
        for number in range(2):
            home = settings.home / f"worker-{number}"
            stack.enter_context(working(changed, settings.model_copy(update={"home": home})))
        seen = stack.enter_context(_workers_seen(world))
        _crawl_by_rule(world, settings, aws, rule)
        asked = world.market.requested_urls()
        world.deliver(settings)
        first = {_row(row) for row in _state(world)}
        world.market.random_changes(SELLER, products // 4)
        _crawl_by_rule(world, settings, aws, rule)

        registry.change_interval(world.database, SellerId(SELLER), CrawlingInterval.hours(6), utc_now())
        relay_rules(world.database, settings, utc_now)
        _expect(bridge.describe_rule(Name=rule)["ScheduleExpression"] == "rate(6 hours)", "the rule has changed")
        deactivate_seller(world.database, SellerId(SELLER), utc_now())
        relay_rules(world.database, settings, utc_now)
        _expect(bridge.list_rules()["Rules"] == [], "the rule is gone")
        with DeadLetters(world.database, settings).look(5) as letters:
            parked = [(one.status, one.reason, one.message) for one in letters]
        _expect(not parked, f"nothing is parked: {parked}")
        _expect(len(seen()) > 2, "both workers and the run have worked")
        effects = check_all(changed, SELLER, settings)
    repeated = sum(times - 1 for url, times in asked.items() if "mustit-api" in url)
    hurt = world.number("SELECT count(*) FROM crawler_tasks WHERE retry_count + release_count > 0")
    _expect(not repeated, f"no request of the first crawl was repeated: {repeated} were, {hurt} tasks were hurt")
    told = _state(world)
    audit = world.market.audit()
    _expect(audit["maxInWindow"] == REQUESTS, f"the budget was used to its limit: {audit}")
    with fresh_world() as usual:
        default = usual.with_settings(**limits)
        usual.market.settings(requestsPerWindow=REQUESTS, windowSeconds=WINDOW_SECONDS)
        usual.market.add_seller(SELLER, products)
        register(usual.database, SELLER)
        _crawl_whole(usual, default)
        usual.deliver(default)
        other_first = {_row(row) for row in _state(usual)}
        usual.market.random_changes(SELLER, products // 4)
        _crawl_whole(usual, default)
        _expect(usual.market.products(SELLER) == world.market.products(SELLER), "both marketplaces are alike")
        _expect(first == other_first, "the state after the first crawl is the default transport's")
        found = [one for one in zip(told, _state(usual), strict=True) if one[0] != one[1]]
        if found:
            raise AssertionError(f"{len(found)} rows differ from the default transport's, such as {found[0]}")
    return {
        "products": products,
        "workers seen": len(seen()),
        "rows compared": len(told),
        "most in a window": audit["maxInWindow"],
        "requests": audit["requests"],
        "effects": effects,
    }


def _crawl_by_rule(world: World, settings: Settings, aws: StrictAws, rule: str) -> None:
    """The rule fires three times in its window: one crawl."""
    before = world.number(EXECUTIONS)
    for _ in range(3):
        aws.fire(rule)
    queue = TriggerQueue(settings, QUEUE)
    while take_triggers(world.database, settings, queue, utc_now).messages:
        pass
    _crawl_whole(world, settings)
    _expect(world.number(EXECUTIONS) == before + 1, "one crawl in a window")


def _crawl_whole(world: World, settings: Settings) -> None:
    stored = crawl(world.database, settings, SELLER).stored
    until = time.monotonic() + PATIENCE_SECONDS
    while stored.is_open and time.monotonic() < until:
        stored = crawl(world.database, settings, SELLER).stored
    ended = f"{stored.status}, {stored.failed_tasks} of {stored.planned_tasks} tasks failed"
    _expect(stored.status is ExecutionStatus.COMPLETED and not stored.failed_tasks, f"the crawl is whole: {ended}")


# All that a crawl leaves, but for ids, times, and the order in which it was done.
_STATES = (
    """SELECT 'product', item_no, version, complete, deleted_at IS NULL, minishop_data_hash, detail_data_hash,
              option_data_hash FROM products""",
    "SELECT 'version', item_no, version, life_cycle, changes, product_data FROM product_change_sets",
    "SELECT 'event', item_no, version, event_type FROM product_outbox",
    "SELECT 'task', task_key, status, retry_count, release_count, error_code FROM crawler_tasks",
    """SELECT 'crawl', status, sweep_status, total_tasks, completed_tasks, failed_tasks, requests, throttled
       FROM crawling_schedule_executions""",
    "SELECT 'body', source, item_no, page_no, status, content_hash FROM product_raw_data",
)


def _state(world: World) -> list[tuple[Any, ...]]:
    with world.database.reading() as connection:
        return sorted((tuple(row) for query in _STATES for row in connection.execute(text(query))), key=_row)


def _row(row: tuple[Any, ...]) -> str:
    return json.dumps(row, sort_keys=True, default=str)


def _expect(kept: bool, what: str) -> None:
    if not kept:
        raise AssertionError(f"it is not so: {what}")


@contextmanager
def _workers_seen(world: World) -> Generator[Callable[[], set[str]]]:
    """The owners of leases that were seen so far."""
    over, seen = threading.Event(), set[str]()
    query = text("SELECT DISTINCT split_part(lease_owner, ':', 2) FROM crawler_tasks WHERE lease_owner IS NOT NULL")

    def look() -> None:
        while not over.wait(0.05):
            with world.database.reading() as connection:
                seen.update(connection.execute(query).scalars())

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield lambda: seen
    finally:
        over.set()
        looking.join()


@contextmanager
def _misbehaving(aws: StrictAws) -> Generator[Callable[[], int]]:
    """Something goes wrong with every few calls, until the end; how often it did so far."""
    chance, over, struck = random.Random(5), threading.Event(), list[str]()

    def strike() -> None:
        while not over.wait(0.1):
            operation = chance.choice(CALLS)
            fault = chance.choice([Fault.ERROR, Fault.THROTTLED, Fault.LOST, Fault.HALF])
            if fault is Fault.HALF and operation == "ReceiveMessage":
                continue
            aws.go_wrong(operation, fault)
            struck.append(operation)

    striking = threading.Thread(target=strike)
    striking.start()
    try:
        yield lambda: len(struck)
    finally:
        over.set()
        striking.join()


AWS_SCENARIOS: tuple[Callable[[World, Size], Numbers], ...] = (
    a_sellers_life_over_eventbridge_and_sqs,
    crawl_over_sqs_killed_at_random_moments,
    workers_over_an_sqs_that_misbehaves,
)
