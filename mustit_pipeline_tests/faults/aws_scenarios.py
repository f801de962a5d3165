"""What can be done to a crawl whose tasks SQS carries: its processes are killed, SQS repeats messages and fails."""

import os
import random
import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from unittest.mock import patch

from mustit_pipeline.aws.setup import make_queues
from mustit_pipeline_tests.faults.children import working
from mustit_pipeline_tests.faults.engine_scenarios import crawl_killed_at_random_moments
from mustit_pipeline_tests.faults.invariants import check_all
from mustit_pipeline_tests.faults.scenarios import SELLER, Numbers, Size
from mustit_pipeline_tests.faults.world import World
from mustit_pipeline_tests.integration.crawls import crawl, register
from mustit_pipeline_tests.simulated_aws import VARIABLES, simulated_aws
from mustit_pipeline_tests.strict_aws import Fault, StrictAws, strict_aws

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


def crawl_over_sqs_killed_at_random_moments(world: World, size: Size) -> Numbers:
    """kill -9 of a crawl over SQS again and again, each message coming three times: nothing is lost or stored twice."""
    with _over_sqs(world) as (changed, aws):
        aws.repeats = 2
        return crawl_killed_at_random_moments(changed, size)


def workers_over_an_sqs_that_misbehaves(world: World, size: Size) -> Numbers:
    """Two `mustit worker` beside a crawl: calls fail, are throttled, lose their answer or half of their batch."""
    world.market.add_seller(SELLER, size.products)
    register(world.database, SELLER)
    with _over_sqs(world) as (changed, aws), ExitStack() as stack:
        settings = changed.with_settings(max_concurrent_requests=10, page_size=100, lease_seconds=1)
        aws.repeats = 9
        for number in range(2):
            home = settings.home / f"worker-{number}"
            stack.enter_context(working(changed, settings.model_copy(update={"home": home})))
        struck = stack.enter_context(_misbehaving(aws))
        outcome = crawl(world.database, settings, SELLER)
        if outcome.stored.execution.failed_tasks:
            raise AssertionError(f"{outcome.stored.execution.failed_tasks} tasks failed")
        asked = {url: times for url, times in world.market.requested_urls().items() if "mustit-api" in url}
        repeated = sum(times - 1 for times in asked.values())
        if repeated > 2 * settings.max_concurrent_requests:
            raise AssertionError(f"{repeated} requests were repeated")
        return {"struck": struck(), "repeated": repeated, "effects": check_all(changed, SELLER, settings)}


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
    crawl_over_sqs_killed_at_random_moments,
    workers_over_an_sqs_that_misbehaves,
)
