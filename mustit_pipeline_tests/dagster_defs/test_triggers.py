"""The sensor of the trigger queue: off unless it is set, and from a message to a finished crawl."""

import dagster as dg
import pytest

from mustit_pipeline.crawling import steering
from mustit_pipeline.crawling.steering import open_or_join
from mustit_pipeline.defs.crawl.due import due_crawls
from mustit_pipeline.defs.crawl.triggers import sqs_triggers
from mustit_pipeline.defs.failures import PermanentFailure, TransientFailure
from mustit_pipeline.domain.states import ExecutionStatus
from mustit_pipeline.domain.values import ExecutionId, SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.simulator.control import MarketplaceControl
from mustit_pipeline.simulator.process import RunningSimulator
from mustit_pipeline_tests.conftest import free_port
from mustit_pipeline_tests.dagster_defs.conftest import SetEnvironment, Tick, run_job
from mustit_pipeline_tests.integration.crawls import register
from mustit_pipeline_tests.simulated_aws import Queue, SimulatedAws

SELLER = "한글 & a/b 50%"


@pytest.fixture
def queue(aws: SimulatedAws, set_environment: SetEnvironment) -> Queue:
    """A trigger queue that the settings name."""
    made = aws.queue()
    set_environment(trigger_queue_url=made.url, aws_endpoint_url=aws.endpoint)
    return made


def test_without_a_queue_the_tick_says_that_it_is_off(tick: Tick) -> None:
    assert tick(sqs_triggers).skip_message == "off: MUSTIT_TRIGGER_QUEUE_URL is not set"


def test_from_a_message_to_a_finished_crawl(
    database: Database,
    instance: dg.DagsterInstance,
    set_environment: SetEnvironment,
    tick: Tick,
    queue: Queue,
    marketplace: RunningSimulator,
    market: MarketplaceControl,
) -> None:
    """The seller was crawled a moment ago and is not due for a day: only the message starts this."""
    set_environment(base_url=marketplace.url)
    market.add_seller(SELLER, 3)
    register(database, SELLER)
    before = open_or_join(database, SellerId(SELLER), triggered_by="test", now=utc_now()).stored.execution.id
    steering.cancel(database, before, utc_now())
    assert not tick(due_crawls).run_requests
    queue.send({"sellerId": SELLER}, {"sellerId": SELLER}, {"sellerId": "unknown"})

    told = tick(sqs_triggers).skip_message
    [request] = tick(due_crawls).run_requests
    result = run_job(instance, "crawl_seller", request.partition_key, tags=dict(request.tags))

    assert told == ("3 messages: 1 crawls due, 1 joined an open crawl, 1 parked (1 UNKNOWN_SELLER)")
    assert result.success
    stored = steering.find(database, ExecutionId(request.tags["mustit/execution"]))
    assert (stored.triggered_by, stored.execution.status) == ("sqs", ExecutionStatus.COMPLETED)
    assert queue.left() == 0
    assert tick(sqs_triggers).skip_message == "no message waits"
    assert not tick(due_crawls).run_requests


def test_a_queue_that_refuses_fails_the_tick_for_good_and_one_that_is_silent_does_not(
    tick: Tick, queue: Queue, set_environment: SetEnvironment
) -> None:
    set_environment(trigger_queue_url=queue.url + "-gone")
    with pytest.raises(PermanentFailure, match="mustit-triggers-gone"):
        tick(sqs_triggers)

    set_environment(aws_endpoint_url=f"http://127.0.0.1:{free_port()}")
    with pytest.raises(TransientFailure, match="mustit-triggers-gone cannot be reached"):
        tick(sqs_triggers)
