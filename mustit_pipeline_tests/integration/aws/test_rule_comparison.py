"""Rules compared with schedules and mended, and rules that fire: into the trigger queue, and at our API."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from sqlalchemy import text

from mustit_pipeline.aws.rule_comparison import Difference, different_rules, mend_rules
from mustit_pipeline.aws.rule_relay import relay_rules
from mustit_pipeline.aws.setup import make_destination, make_queues
from mustit_pipeline.aws.trigger_queue import TriggerQueue
from mustit_pipeline.crawling.sql import executions
from mustit_pipeline.crawling.steering import deactivate_seller
from mustit_pipeline.delivery.relay import relay
from mustit_pipeline.domain.schedule import rule_name
from mustit_pipeline.domain.states import ExecutionStatus
from mustit_pipeline.domain.values import CrawlingInterval, SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.scheduling.triggers import take_triggers
from mustit_pipeline.sellers import registry
from mustit_pipeline.settings import SettingsError
from mustit_pipeline.simulator.control import MarketplaceControl, ProductServerControl
from mustit_pipeline.simulator.process import RunningSimulator
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.integration.aws.asking import asking
from mustit_pipeline_tests.integration.crawling.checks import check_outcomes, number
from mustit_pipeline_tests.integration.crawls import crawl, differences, register
from mustit_pipeline_tests.own_servers import QuietHandler, serving
from mustit_pipeline_tests.strict_aws import StrictAws

TARGET = "arn:aws:sqs:ap-northeast-2:123456789012:mustit-triggers"
QUEUE = "https://sqs.ap-northeast-2.amazonaws.com/123456789012/mustit-triggers"
ROLE = "arn:aws:iam::123456789012:role/mustit-rules"


@pytest.fixture
def make(make_settings: MakeSettings, strict: StrictAws) -> MakeSettings:
    return partial(
        make_settings,
        trigger="eventbridge",
        trigger_target_arn=TARGET,
        trigger_queue_url=QUEUE,
        aws_endpoint_url=strict.endpoint,
    )


def test_rules_that_differ_from_their_schedules_are_named_and_mended(
    database: Database, make: MakeSettings, strict: StrictAws
) -> None:
    settings = make()
    register(database, "as-it-is", "gone", "slow", "stopped", "elsewhere", "followed", "inactive", "셀러")
    relay_rules(database, settings, utc_now)
    assert different_rules(database, settings) == []

    bridge = strict.client("events")
    bridge.remove_targets(Rule=rule_name(SellerId("gone")), Ids=["mustit"])
    bridge.delete_rule(Name=rule_name(SellerId("gone")))
    bridge.put_rule(Name=rule_name(SellerId("slow")), ScheduleExpression="rate(9 days)", State="ENABLED")
    bridge.disable_rule(Name=rule_name(SellerId("stopped")))
    bridge.put_targets(
        Rule=rule_name(SellerId("elsewhere")), Targets=[{"Id": "mustit", "Arn": f"{TARGET}-2", "Input": "{}"}]
    )
    for name in ("followed", "inactive"):
        bridge.put_targets(Rule=rule_name(SellerId(name)), Targets=[{"Id": "log", "Arn": f"{TARGET}-2"}])
    with database.transaction() as connection:
        # As if its rule had been made again by hand.
        connection.execute(text("UPDATE sellers SET status = 'INACTIVE' WHERE seller_id = 'inactive'"))
    bridge.put_rule(Name="mustit-crawler-strange", ScheduleExpression="rate(1 day)", State="ENABLED")

    found = different_rules(database, settings)
    assert {one.name: one.difference for one in found} == {
        "mustit-crawler-gone": Difference.MISSING,
        "mustit-crawler-slow": Difference.OTHER,
        "mustit-crawler-stopped": Difference.OTHER,
        "mustit-crawler-elsewhere": Difference.OTHER,
        "mustit-crawler-followed": Difference.OTHER,
        "mustit-crawler-inactive": Difference.LEFT_OVER,
        "mustit-crawler-strange": Difference.UNKNOWN,
    }
    assert mend_rules(database, settings, utc_now, found).applied == 6
    assert [one.name for one in different_rules(database, settings)] == ["mustit-crawler-strange"]


def test_the_command_lists_rules_that_differ_and_mends_them(
    database: Database, make: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(database, "dmont")
    ask = asking(make(), monkeypatch)

    missing = {"rule": "mustit-crawler-dmont", "difference": "MISSING", "sellerId": "dmont"}
    assert ask("aws", "rules", code=1) == {"different": [missing], "applied": 0}
    assert ask("aws", "rules", "--mend") == {"different": [], "applied": 1}
    assert ask("aws", "rules") == {"different": [], "applied": 0}


def test_a_change_is_stored_as_it_was_sent(database: Database, make: MakeSettings) -> None:
    register(database, "dmont")
    query = text("SELECT payload FROM scheduler_outbox WHERE status = 'COMPLETED'")

    relay_rules(database, make(), utc_now)

    with database.reading() as connection:
        assert json.loads(connection.execute(query).scalar_one()) == {
            "ruleName": "mustit-crawler-dmont",
            "scheduleExpression": "rate(1 day)",
            "targetArn": TARGET,
            "input": '{"sellerId": "dmont"}',
        }


def test_a_change_of_before_whose_input_was_an_object_is_sent_as_a_text(
    database: Database, make: MakeSettings, strict: StrictAws
) -> None:
    register(database, "dmont")
    old = {"ruleName": "mustit-crawler-dmont", "scheduleExpression": "rate(1 day)", "targetArn": None}
    payload = json.dumps(old | {"input": {"sellerId": "dmont"}})
    with database.transaction() as connection:
        connection.execute(text("UPDATE scheduler_outbox SET payload = :payload"), {"payload": payload})

    relay_rules(database, make(), utc_now)

    assert different_rules(database, make()) == []


def test_from_a_registration_over_a_rule_and_sqs_to_the_product_server_and_to_a_rule_that_is_gone(
    database: Database,
    make: MakeSettings,
    strict: StrictAws,
    marketplace: RunningSimulator,
    market: MarketplaceControl,
    product_server: RunningSimulator,
    receiver: ProductServerControl,
) -> None:
    market.add_seller("s", 20)
    servers = {"base_url": marketplace.url, "product_server_url": product_server.url}
    settings = make(task_transport="sqs", page_size=10, lease_seconds=5, **servers)
    make_queues(settings)
    register(database, "s")
    relay_rules(database, settings, utc_now)
    queue = TriggerQueue(settings, QUEUE)

    # Three times in one window: one crawl.
    for _ in range(3):
        strict.fire("mustit-crawler-s")
    take_triggers(database, settings, queue, utc_now)
    outcome = crawl(database, settings, "s")

    assert outcome.stored.status is ExecutionStatus.COMPLETED
    assert outcome.stored.triggered_by == "sqs"
    check_outcomes(database, outcome.stored.id)
    assert number(database, "SELECT count(*) FROM crawling_schedule_executions") == 1
    relay(database, settings)
    assert len(receiver.products("s")) == 20
    assert differences(market, receiver, "s") == {}

    registry.change_interval(database, SellerId("s"), CrawlingInterval.hours(6), utc_now())
    relay_rules(database, settings, utc_now)
    bridge = strict.client("events")
    assert bridge.describe_rule(Name="mustit-crawler-s")["ScheduleExpression"] == "rate(6 hours)"
    deactivate_seller(database, SellerId("s"), utc_now())
    relay_rules(database, settings, utc_now)
    assert bridge.list_rules()["Rules"] == []


@contextmanager
def api() -> Generator[tuple[str, list[tuple[str, str | None, Any]]]]:
    """Something that listens where our API would: the paths, keys and bodies of what is posted."""
    posted: list[tuple[str, str | None, Any]] = []

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            posted.append((self.path, self.headers.get("X-API-Key"), json.loads(self.body())))
            self.answer(200)

    with serving(Handler) as url:
        yield url, posted


def test_a_rule_whose_target_is_an_api_destination_calls_our_api_with_its_key(
    database: Database, make: MakeSettings, strict: StrictAws
) -> None:
    register(database, "셀러")
    with api() as (url, posted):
        made = make_destination(make(trigger_api_url=url, trigger_api_key="mk_1_secret"))
        assert made is not None
        settings = make(trigger_target_arn=made.arn, trigger_role_arn=ROLE, trigger_queue_url=None)
        relay_rules(database, settings, utc_now)
        assert different_rules(database, settings) == []

        strict.fire(rule_name(SellerId("셀러")))

    assert posted == [("/api/internal/crawling/trigger", "mk_1_secret", {"sellerId": "셀러"})]
    with database.reading() as connection:
        assert executions.find_open(connection, SellerId("셀러")) is None


def test_without_a_target_there_are_no_rules_to_compare(database: Database, make_settings: MakeSettings) -> None:
    with pytest.raises(SettingsError, match="MUSTIT_TRIGGER_TARGET_ARN"):
        different_rules(database, make_settings())
