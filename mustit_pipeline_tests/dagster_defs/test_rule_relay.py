"""Who starts due crawls: Dagster by interval, or EventBridge's rules through the queue."""

import json
from typing import Any

import dagster as dg
import pytest
from sqlalchemy import text

from mustit_pipeline.crawling.steering import cancel, open_or_join
from mustit_pipeline.definitions import defs
from mustit_pipeline.defs.crawl.due import due_crawls
from mustit_pipeline.defs.crawl.triggers import sqs_triggers
from mustit_pipeline.defs.delivery.waiting import waiting_outbox
from mustit_pipeline.defs.resources import RESOURCES
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline_tests.dagster_defs.conftest import AddRun, SetEnvironment, Tick, keys
from mustit_pipeline_tests.integration.crawls import register
from mustit_pipeline_tests.simulated_aws import SimulatedAws

SELLER = "한글 & a/b 50%"
TARGET = "arn:aws:sqs:ap-northeast-2:123456789012:mustit-triggers"
pytestmark = pytest.mark.usefixtures("set_environment")


@pytest.fixture
def eventbridge(set_environment: SetEnvironment, aws: SimulatedAws) -> Any:
    """EventBridge starts crawls; its client."""
    set_environment(trigger="eventbridge", trigger_target_arn=TARGET, aws_endpoint_url=aws.endpoint)
    return aws.client("events")


def relay(instance: dg.DagsterInstance, **config: object) -> dg.ExecuteInProcessResult:
    return defs.resolve_job_def("relay_scheduler_outbox").execute_in_process(
        instance=instance,
        run_config={"ops": {"relay_schedule_changes": {"config": config}}},
        raise_on_error=False,
    )


def told(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    [output] = [event.step_output_data for event in result.all_events if event.is_successful_output]
    return {name: value.value for name, value in output.metadata.items()}


def crawled_before(database: Database, seller_id: str) -> None:
    """A seller that has been crawled and is due again."""
    opened = open_or_join(database, SellerId(seller_id), triggered_by="test", now=utc_now())
    cancel(database, opened.stored.execution.id, utc_now())
    with database.transaction() as connection:
        connection.execute(
            text("UPDATE crawling_schedules SET next_due_at = now() - interval '1 h' WHERE seller_id = :id"),
            {"id": seller_id},
        )


def test_back_with_dagster_a_run_of_everything_lets_failed_schedules_be_crawled_again(
    database: Database, instance: dg.DagsterInstance, tick: Tick
) -> None:
    register(database, "dmont")
    with database.transaction() as connection:
        connection.execute(text("UPDATE crawling_schedules SET status = 'FAILED'"))
    assert tick(due_crawls).run_requests == []

    assert relay(instance, everything=True).success

    assert keys(tick(due_crawls).run_requests) == ["dmont"]


def test_with_dagster_as_the_trigger_there_is_nothing_to_relay(
    database: Database, instance: dg.DagsterInstance, tick: Tick
) -> None:
    register(database, "a", "b")

    result = relay(instance)

    assert result.success
    assert told(result) == {"applied": 0, "waiting": 2}
    assert tick(waiting_outbox).skip_message == "no product event waits"
    assert keys(tick(due_crawls).run_requests) == ["a", "b"]


def test_from_a_schedule_to_a_crawl_through_a_rule_and_its_message(
    database: Database,
    instance: dg.DagsterInstance,
    set_environment: SetEnvironment,
    tick: Tick,
    aws: SimulatedAws,
    eventbridge: Any,
) -> None:
    """A simulated rule never fires: its own input is sent to the queue in its place."""
    queue = aws.queue()
    set_environment(trigger_queue_url=queue.url)
    register(database, SELLER)
    crawled_before(database, SELLER)
    assert tick(due_crawls).skip_message.startswith("EventBridge says who is due and no crawl waits")

    [request] = tick(waiting_outbox).run_requests
    assert request.job_name == "relay_scheduler_outbox"
    assert told(relay(instance)) == {"applied": 1, "retried": 0, "waiting": 0}
    assert tick(waiting_outbox).skip_message == "no product event waits; EventBridge knows every schedule"

    [rule] = eventbridge.list_rules()["Rules"]
    [target] = eventbridge.list_targets_by_rule(Rule=rule["Name"])["Targets"]
    assert (rule["State"], target["Arn"]) == ("ENABLED", TARGET)
    queue.send(json.loads(target["Input"]))
    assert tick(sqs_triggers).skip_message == "1 messages: 1 crawls due"
    assert keys(tick(due_crawls).run_requests) == [SELLER]


@pytest.mark.usefixtures("eventbridge")
def test_with_eventbridge_open_and_first_crawls_go_on_and_due_ones_are_left_to_it(
    database: Database, tick: Tick
) -> None:
    register(database, "due", "new", "open")
    crawled_before(database, "due")
    open_or_join(database, SellerId("open"), triggered_by="test", now=utc_now())

    assert keys(tick(due_crawls).run_requests) == ["new", "open"]


@pytest.mark.usefixtures("eventbridge")
def test_the_sensor_asks_for_both_relays_and_for_neither_twice(
    database: Database, instance: dg.DagsterInstance, set_environment: SetEnvironment, add_run: AddRun
) -> None:
    register(database, "dmont")
    set_environment(product_server_url="http://127.0.0.1:9")
    with database.transaction() as connection:
        connection.execute(
            text("""INSERT INTO product_outbox (seller_id, item_no, version, event_type, idempotency_key, status,
                                                occurred_at)
                    VALUES ('dmont', 1, 1, 'PRODUCT_CREATED', 'x', 'WAITING', now())""")
        )

    def asked() -> list[str | None]:
        repository = defs.get_repository_def()
        with dg.build_sensor_context(instance=instance, resources=RESOURCES, repository_def=repository) as context:
            data = repository.get_sensor_def("waiting_outbox").evaluate_tick(context)
        return [request.job_name for request in data.run_requests or []]

    assert asked() == ["relay_product_outbox", "relay_scheduler_outbox"]
    add_run(None, dg.DagsterRunStatus.STARTED, job="relay_product_outbox")
    assert asked() == ["relay_scheduler_outbox"]
    add_run(None, dg.DagsterRunStatus.STARTED, job="relay_scheduler_outbox")
    assert asked() == []


def test_a_schedule_that_is_given_up_turns_the_run_red_and_a_run_of_everything_mends_it(
    database: Database,
    instance: dg.DagsterInstance,
    set_environment: SetEnvironment,
    aws: SimulatedAws,
    eventbridge: Any,
) -> None:
    register(database, "dmont")
    set_environment(outbox_max_retries=1)
    aws.let_in("0")

    result = relay(instance)

    [failed] = result.get_step_failure_events()
    assert result.filter_events(lambda event: event.is_step_up_for_retry) == []
    said = str(failed.step_failure_data.user_failure_data)
    assert "AWS refuses the rule mustit-crawler-dmont" in said
    assert "everything: true" in said

    aws.let_in("inf")
    assert relay(instance).success
    assert eventbridge.list_rules()["Rules"] == []
    assert told(relay(instance, everything=True))["applied"] == 1
    assert [rule["Name"] for rule in eventbridge.list_rules()["Rules"]] == ["mustit-crawler-dmont"]
