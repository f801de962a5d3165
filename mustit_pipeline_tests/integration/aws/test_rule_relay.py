"""Schedule changes relayed to a simulated EventBridge over HTTP: its rules end as the schedules are."""

import json
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler
from threading import Event
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from mustit_pipeline.aws.rule_relay import RelayedRules, relay_rules
from mustit_pipeline.crawling.steering import deactivate_seller
from mustit_pipeline.domain.schedule import rule_name
from mustit_pipeline.domain.values import CrawlingInterval, SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.monitoring.alerting import observe
from mustit_pipeline.sellers import registry
from mustit_pipeline.sellers.sql import scheduler_outbox
from mustit_pipeline.settings import Settings
from mustit_pipeline_tests.conftest import MakeSettings, free_port
from mustit_pipeline_tests.integration.crawls import register
from mustit_pipeline_tests.own_servers import QuietHandler, serving
from mustit_pipeline_tests.simulated_aws import SimulatedAws

TARGET = "arn:aws:sqs:ap-northeast-2:123456789012:mustit-triggers"
DMONT = SellerId("dmont")
ODD = ["한글 & a/b 50%", "x" * 200, "a b"]


@pytest.fixture
def settings(make_settings: MakeSettings, aws: SimulatedAws) -> Settings:
    return make_settings(
        trigger="eventbridge", trigger_target_arn=TARGET, aws_endpoint_url=aws.endpoint, retry_base_seconds=0.0001
    )


@pytest.fixture
def relay(database: Database, settings: Settings) -> Callable[[], RelayedRules]:
    return lambda: relay_rules(database, settings, utc_now)


@pytest.fixture
def bridge(aws: SimulatedAws) -> Any:
    return aws.client("events")


def rules(bridge: Any) -> dict[str, tuple[str, str]]:
    return {one["Name"]: (one["ScheduleExpression"], one["State"]) for one in bridge.list_rules()["Rules"]}


def rows(database: Database) -> list[tuple[str, str, int]]:
    query = "SELECT event_type, status, retry_count FROM scheduler_outbox ORDER BY seq"
    with database.reading() as connection:
        return [tuple(row) for row in connection.execute(text(query))]


def schedule_statuses(database: Database) -> list[str]:
    with database.reading() as connection:
        query = text("SELECT status FROM crawling_schedules ORDER BY seller_id")
        return list(connection.execute(query).scalars())


def test_a_rule_follows_its_schedule_through_its_life(
    database: Database, bridge: Any, relay: Callable[[], RelayedRules]
) -> None:
    register(database, "dmont")
    assert str(relay()) == "1 rules applied, 0 given up, 0 wait"
    assert rules(bridge) == {"mustit-crawler-dmont": ("rate(1 day)", "ENABLED")}
    [target] = bridge.list_targets_by_rule(Rule="mustit-crawler-dmont")["Targets"]
    assert (target["Arn"], json.loads(target["Input"])) == (TARGET, {"sellerId": "dmont"})

    registry.change_interval(database, DMONT, CrawlingInterval.hours(6), utc_now())
    relay()
    assert rules(bridge) == {"mustit-crawler-dmont": ("rate(6 hours)", "ENABLED")}

    deactivate_seller(database, DMONT, utc_now())
    relay()
    assert rules(bridge) == {}

    registry.activate(database, DMONT, utc_now())
    relay()
    assert rules(bridge) == {"mustit-crawler-dmont": ("rate(6 hours)", "ENABLED")}
    assert len(bridge.list_targets_by_rule(Rule="mustit-crawler-dmont")["Targets"]) == 1
    assert {status for _, status, _ in rows(database)} == {"COMPLETED"}
    assert str(relay()) == "0 rules applied, 0 given up, 0 wait"


def test_sellers_whose_id_fits_no_rule_have_one_that_names_them(
    database: Database, bridge: Any, relay: Callable[[], RelayedRules]
) -> None:
    register(database, *ODD)

    relay()

    said = {
        name: json.loads(bridge.list_targets_by_rule(Rule=name)["Targets"][0]["Input"])["sellerId"]
        for name in rules(bridge)
    }
    assert said == {rule_name(SellerId(seller_id)): seller_id for seller_id in ODD}


def test_telling_again_changes_nothing_but_reaches_a_new_target(
    database: Database, bridge: Any, settings: Settings, relay: Callable[[], RelayedRules]
) -> None:
    register(database, "dmont", "inactive")
    deactivate_seller(database, SellerId("inactive"), utc_now())
    relay()
    before, statuses = rules(bridge), schedule_statuses(database)

    assert registry.resend(database, utc_now()) == 2
    moved = settings.model_copy(update={"trigger_target_arn": f"{TARGET}-new"})
    assert relay_rules(database, moved, utc_now).applied == 2

    assert (rules(bridge), schedule_statuses(database)) == (before, statuses)
    [target] = bridge.list_targets_by_rule(Rule="mustit-crawler-dmont")["Targets"]
    assert target["Arn"] == f"{TARGET}-new"


def test_while_no_relay_runs_only_the_newest_change_of_a_schedule_waits(
    database: Database, bridge: Any, relay: Callable[[], RelayedRules]
) -> None:
    register(database, "dmont", "gone")
    for hours in range(1, 20):
        registry.change_interval(database, DMONT, CrawlingInterval.hours(hours), utc_now())
    deactivate_seller(database, SellerId("gone"), utc_now())

    with database.reading() as connection:
        waiting = scheduler_outbox.counts(connection).waiting
        unnamed = connection.execute(
            text("SELECT count(*) FROM scheduler_outbox WHERE status = 'COMPLETED' AND superseded_by IS NULL")
        ).scalar_one()
    assert (waiting, unnamed) == (2, 0)
    # A schedule that was deactivated before it was sent has no rule, and needs none.
    assert relay().applied == 2
    assert rules(bridge) == {"mustit-crawler-dmont": ("rate(19 hours)", "ENABLED")}


def test_the_change_that_was_made_last_counts_whatever_the_clocks_said(
    database: Database, bridge: Any, relay: Callable[[], RelayedRules]
) -> None:
    register(database, "dmont")
    registry.change_interval(database, DMONT, CrawlingInterval.hours(6), utc_now() + timedelta(minutes=5))
    registry.change_interval(database, DMONT, CrawlingInterval.hours(7), utc_now() - timedelta(minutes=5))

    relay()

    assert rules(bridge) == {"mustit-crawler-dmont": ("rate(7 hours)", "ENABLED")}


def test_after_five_tries_the_schedule_is_failed_and_an_alert_raised_until_it_is_told_again(
    database: Database, bridge: Any, settings: Settings, relay: Callable[[], RelayedRules], aws: SimulatedAws
) -> None:
    register(database, "dmont")
    aws.let_in("0")
    tries, deadline = 0, time.monotonic() + 60
    while not (relayed := relay()).failed:
        assert time.monotonic() < deadline
        tries += relayed.retried
        time.sleep(0.01)

    assert tries + relayed.retried + 1 == 5
    assert "the rule mustit-crawler-dmont" in str(relayed)
    assert rows(database) == [("SCHEDULE_REGISTERED", "FAILED", 5)]
    assert schedule_statuses(database) == ["FAILED"]
    assert observe(database, settings, utc_now()).opened == 1
    assert str(relay()) == "0 rules applied, 0 given up, 0 wait"

    aws.let_in("inf")
    registry.resend(database, utc_now())
    assert relay().applied == 1
    assert schedule_statuses(database) == ["ACTIVE"]
    assert rules(bridge) == {"mustit-crawler-dmont": ("rate(1 day)", "ENABLED")}


def test_an_outage_costs_few_schedules_a_try_and_waits_longer_each_time(
    database: Database, make_settings: MakeSettings, aws: SimulatedAws
) -> None:
    register(database, *(f"seller {number}" for number in range(5)))
    nowhere = make_settings(
        trigger="eventbridge",
        trigger_target_arn=TARGET,
        aws_endpoint_url=f"http://127.0.0.1:{free_port()}",
        retry_base_seconds=1,
    )

    relayed = relay_rules(database, nowhere, utc_now)

    assert (relayed.retried, relayed.failed, relayed.waiting) == (3, 0, 5)
    assert "cannot be reached" in str(relayed)
    assert [tries for _, _, tries in rows(database)] == [1, 1, 1, 0, 0]
    with database.reading() as connection:
        query = text("SELECT count(*) FROM scheduler_outbox WHERE next_attempt_at > now() + interval '10 seconds'")
        assert connection.execute(query).scalar_one() == 3
        assert scheduler_outbox.next_due_in(connection) == 0


def test_a_failure_of_an_old_change_does_not_fail_a_schedule_that_has_changed_since(
    database: Database, bridge: Any, relay: Callable[[], RelayedRules]
) -> None:
    register(database, "dmont")
    with database.transaction() as connection:
        claimed = scheduler_outbox.claim(connection, owner="me", lease_seconds=60, max_retries=1)
    assert claimed is not None
    deactivate_seller(database, DMONT, utc_now())
    # One in flight per schedule: the newer one waits.
    assert relay().applied == 0

    claimed.outbox.fail("refused")
    with database.transaction() as connection:
        assert scheduler_outbox.settle(connection, claimed, 0)

    assert schedule_statuses(database) == ["INACTIVE"]
    assert relay().applied == 1
    assert [status for _, status, _ in rows(database)] == ["COMPLETED", "COMPLETED"]
    assert rules(bridge) == {}


def test_what_a_dead_relay_left_in_flight_is_sent_again(
    database: Database, bridge: Any, relay: Callable[[], RelayedRules]
) -> None:
    register(database, "dmont")
    with database.transaction() as connection:
        scheduler_outbox.claim(connection, owner="dead", lease_seconds=60, max_retries=5)
    assert relay().applied == 0
    with database.transaction() as connection:
        connection.execute(text("UPDATE scheduler_outbox SET lease_expires_at = now() - interval '1 second'"))

    assert relay().applied == 1
    assert rules(bridge) == {"mustit-crawler-dmont": ("rate(1 day)", "ENABLED")}


def test_relays_at_once_send_each_change_once(
    database: Database, bridge: Any, relay: Callable[[], RelayedRules]
) -> None:
    register(database, *(f"seller-{number}" for number in range(20)))

    with ThreadPoolExecutor(3) as relays:
        relayed = [one.result() for one in [relays.submit(relay) for _ in range(3)]]

    assert sum(one.applied for one in relayed) == 20
    assert len(rules(bridge)) == 20


@contextmanager
def answering(body: bytes) -> Generator[str]:
    """An AWS that answers every call with 400 and these words."""

    class Refusal(QuietHandler):
        def do_POST(self) -> None:
            self.body()
            self.answer(400, body)

    with serving(Refusal) as url:
        yield url


def test_refusals_of_single_rules_keep_no_other_waiting(database: Database, settings: Settings) -> None:
    register(database, *(f"seller {number}" for number in range(5)))
    with answering(b'{"__type": "LimitExceededException", "message": "too many rules"}') as full:
        relayed = relay_rules(database, settings.model_copy(update={"aws_endpoint_url": full}), utc_now)

    assert relayed.retried >= 5
    assert min(tries for _, _, tries in rows(database)) > 0


def test_whatever_an_answer_says_can_be_written_down(database: Database, settings: Settings) -> None:
    register(database, "dmont")
    with answering(b"bad\0gate") as odd:
        relayed = relay_rules(database, settings.model_copy(update={"aws_endpoint_url": odd}), utc_now)

    assert "bad\ufffdgate" in str(relayed)


@contextmanager
def held_up(endpoint: str, held: Event, go_on: Event) -> Generator[str]:
    """The same AWS behind a door that keeps the first call waiting."""

    class Door(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if not held.is_set():
                held.set()
                go_on.wait(20)
            headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
            answer = httpx.post(endpoint, content=body, headers=headers, trust_env=False)
            self.send_response(answer.status_code)
            self.send_header("Content-Length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        def log_message(self, format: str, *args: object) -> None:
            """Ignored."""

    with serving(Door) as url:
        try:
            yield url
        finally:
            go_on.set()


def test_a_relay_that_wakes_up_late_does_not_leave_an_old_rule_behind(
    database: Database, bridge: Any, settings: Settings, relay: Callable[[], RelayedRules], aws: SimulatedAws
) -> None:
    """Its call arrives after a newer one of another relay: EventBridge itself would keep what came last."""
    register(database, "dmont")
    held, go_on = Event(), Event()
    with held_up(aws.endpoint, held, go_on) as door, ThreadPoolExecutor(1) as late:
        slow = settings.model_copy(update={"aws_endpoint_url": door, "relay_lease_seconds": 0.05})
        sleeper = late.submit(relay_rules, database, slow, utc_now)
        assert held.wait(10)
        time.sleep(0.1)
        registry.change_interval(database, DMONT, CrawlingInterval.hours(6), utc_now())
        relay()
        assert rules(bridge) == {"mustit-crawler-dmont": ("rate(6 hours)", "ENABLED")}
        go_on.set()
        sleeper.result()
    relay()

    assert rules(bridge) == {"mustit-crawler-dmont": ("rate(6 hours)", "ENABLED")}
    assert {status for _, status, _ in rows(database)} == {"COMPLETED"}
