"""Messages of a real queue over HTTP: each takes effect once, whichever process dies or comes again."""

import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text

from mustit_pipeline.aws.clients import AwsRefused, AwsUnreachable
from mustit_pipeline.aws.trigger_queue import Delivery, TriggerQueue
from mustit_pipeline.crawling import steering
from mustit_pipeline.crawling.steering import deactivate_seller, open_or_join
from mustit_pipeline.domain.trigger import LARGEST_BODY_BYTES, ParkReason
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.scheduling.due import begin_slices
from mustit_pipeline.scheduling.sql import triggers
from mustit_pipeline.scheduling.triggers import Outcome, Taken, take_triggers
from mustit_pipeline.settings import Settings
from mustit_pipeline_tests.conftest import MakeSettings, free_port
from mustit_pipeline_tests.integration.crawls import register
from mustit_pipeline_tests.simulated_aws import Queue, SimulatedAws

MakeQueue = Callable[..., tuple[Queue, Callable[..., Taken]]]


@pytest.fixture
def make_queue(database: Database, make_settings: MakeSettings, aws: SimulatedAws) -> MakeQueue:
    """A queue, and one look at it."""

    def make(*, visibility_seconds: int = 30, **changed: Any) -> tuple[Queue, Callable[..., Taken]]:
        queue = aws.queue(visibility_seconds=visibility_seconds)
        settings = make_settings(aws_endpoint_url=aws.endpoint, **changed)
        return queue, lambda: take_triggers(database, settings, TriggerQueue(settings, queue.url), utc_now)

    return make


def executions(database: Database) -> list[tuple[str, str, str]]:
    query = "SELECT seller_id, status, triggered_by FROM crawling_schedule_executions ORDER BY created_at"
    with database.reading() as connection:
        return [tuple(row) for row in connection.execute(text(query))]


def end_crawl(database: Database, seller_id: str) -> None:
    opened = open_or_join(database, SellerId(seller_id), triggered_by="test", now=utc_now())
    steering.cancel(database, opened.stored.execution.id, utc_now())


def test_a_message_opens_a_crawl_of_a_seller_that_is_not_due_and_is_deleted(
    database: Database, make_queue: MakeQueue
) -> None:
    register(database, "dmont")
    end_crawl(database, "dmont")
    queue, look = make_queue()
    assert begin_slices(database, busy=[], free=4, now=utc_now(), slice_seconds=600) == []
    [message_id] = queue.send({"sellerId": "dmont", "time": "2026-11-16T00:00:00Z"})

    taken = look()

    assert str(taken) == "1 messages: 1 crawls due"
    assert executions(database)[1:] == [("dmont", "PENDING", "sqs")]
    [due] = begin_slices(database, busy=[], free=4, now=utc_now(), slice_seconds=600)
    with database.reading() as connection:
        row = connection.execute(text("SELECT message_id, execution_id FROM trigger_messages")).one()
    assert tuple(row) == (message_id, due.execution_id)
    assert (due.seller_id, queue.left()) == ("dmont", 0)
    assert str(look()) == "no message waits"


def test_a_second_trigger_joins_the_open_crawl_and_says_so(database: Database, make_queue: MakeQueue) -> None:
    register(database, "dmont", "paused")
    stored = open_or_join(database, SellerId("paused"), triggered_by="test", now=utc_now()).stored
    with database.transaction() as connection:
        connection.execute(text("UPDATE crawling_schedule_executions SET status = 'RUNNING', started_at = now()"))
    steering.pause(database, stored.execution.id)
    queue, look = make_queue()
    queue.send({"sellerId": "dmont"}, {"sellerId": "dmont"}, {"sellerId": "paused"})

    taken = look()

    assert str(taken) == (
        "3 messages: 1 crawls due, 1 joined an open crawl, 1 joined a PAUSED crawl, which waits to be resumed"
    )
    assert executions(database) == [("paused", "PAUSED", "test"), ("dmont", "PENDING", "sqs")]
    assert queue.left() == 0


def test_messages_that_lay_in_the_queue_are_caught_up_once(database: Database, make_queue: MakeQueue) -> None:
    register(database, "dmont")
    queue, look = make_queue(trigger_tick_messages=10)
    queue.send(*[{"sellerId": "dmont"}] * 15)
    assert look().outcomes == {Outcome.OPENED: 1, Outcome.JOINED: 9}
    [(_, _, _)] = executions(database)
    with database.transaction() as connection:
        connection.execute(text("UPDATE crawling_schedule_executions SET status = 'COMPLETED', ended_at = now()"))

    assert str(look()) == "5 messages: 5 answered by a crawl that began since they were sent"
    assert len(executions(database)) == 1
    queue.send({"sellerId": "dmont"})
    assert look().outcomes == {Outcome.OPENED: 1}


def test_a_message_that_was_stored_but_not_deleted_comes_again_and_changes_nothing(
    database: Database, make_queue: MakeQueue, aws: SimulatedAws
) -> None:
    """AWS lets the receipt through and refuses the deletion, as if the process had died in between."""
    register(database, "dmont")
    queue, look = make_queue(visibility_seconds=1)
    queue.send({"sellerId": "dmont"}, "poison")
    aws.let_in("1")
    with pytest.raises(AwsRefused, match="mustit-triggers"):
        look()
    aws.let_in("inf")
    assert queue.left() == 2
    end_crawl(database, "dmont")

    time.sleep(1.2)
    taken = look()

    assert str(taken) == "2 messages: 2 had come before"
    assert [status for _, status, _ in executions(database)] == ["CANCELLED"]
    assert queue.left() == 0
    with database.reading() as connection:
        assert triggers.parked(connection) == {ParkReason.NOT_JSON: 1}


def test_two_daemons_that_get_the_same_messages_open_each_crawl_once(database: Database, make_queue: MakeQueue) -> None:
    """Without a time of invisibility every receive hands out whatever is not deleted yet, to any caller."""
    names = [f"seller {number}" for number in range(25)]
    register(database, *names)
    queue, look = make_queue(visibility_seconds=0)
    queue.send(*({"sellerId": name} for name in names), *["poison"] * 5)

    with ThreadPoolExecutor(3) as daemons:
        looks = [look.result() for look in [daemons.submit(look) for _ in range(3)]]

    outcomes = sum((one.outcomes for one in looks), Counter[Outcome]())
    assert (outcomes[Outcome.OPENED], outcomes[Outcome.JOINED], outcomes[Outcome.PARKED]) == (25, 0, 5)
    assert sorted(seller_id for seller_id, _, _ in executions(database)) == sorted(names)
    assert queue.left() == 0


def test_what_cannot_be_followed_is_parked_with_its_reason_and_hinders_no_other(
    database: Database, make_queue: MakeQueue
) -> None:
    register(database, "dmont", "inactive")
    deactivate_seller(database, SellerId("inactive"), utc_now())
    queue, look = make_queue()
    queue.send(
        "not \ufffd json",
        {"sellerId": "unknown"},
        {"sellerId": "inactive"},
        {"sellerId": "dmont", "padding": "x" * LARGEST_BODY_BYTES},
        {"seller": "dmont"},
        {"sellerId": " "},
        {"sellerId": "dmont"},
    )

    taken = look()

    assert str(taken) == (
        "7 messages: 1 crawls due, 6 parked (1 NOT_JSON, 1 UNKNOWN_SELLER, 1 INACTIVE_SELLER, 1 TOO_LARGE, "
        "1 NO_SELLER_ID, 1 BAD_SELLER_ID)"
    )
    assert [seller_id for seller_id, _, _ in executions(database)] == ["dmont"]
    assert queue.left() == 0
    with database.reading() as connection:
        assert triggers.parked(connection) == dict.fromkeys(ParkReason, 1)
        found = triggers.newest_parked(connection, everything=False, limit=10).rows
    bodies = {one.reason: one.body for one in found}
    assert bodies[ParkReason.UNKNOWN_SELLER] == '{"sellerId": "unknown"}'
    assert len(bodies[ParkReason.TOO_LARGE]) == triggers.LONGEST_BODY
    assert {one.queue for one in found} == {queue.url}


def test_a_body_that_postgresql_could_not_hold_is_parked_readably(database: Database) -> None:
    with database.transaction() as connection:
        triggers.remember(connection, "q", "m", utc_now())
        triggers.park(connection, "q", "m", ParkReason.NOT_JSON, "a\0b\ud800c")
    with database.reading() as connection:
        [found] = triggers.newest_parked(connection, everything=False, limit=1).rows
    assert found.body == "a\ufffdb?c"


def test_a_tick_takes_so_many_messages_and_leaves_the_rest_to_the_next(
    database: Database, make_queue: MakeQueue
) -> None:
    register(database, "dmont")
    queue, look = make_queue(trigger_tick_messages=15)
    queue.send(*[{"sellerId": "dmont"}] * 18)

    assert str(look()) == "15 messages: 1 crawls due, 14 joined an open crawl; the next tick goes on"
    assert queue.left() == 3
    assert str(look()) == "3 messages: 3 joined an open crawl"


def test_a_tick_ends_when_its_time_is_over(database: Database, make_queue: MakeQueue) -> None:
    register(database, "dmont")
    queue, look = make_queue(trigger_tick_seconds=0.001)
    queue.send(*[{"sellerId": "dmont"}] * 18)

    assert (look().messages, queue.left()) == (10, 8)


def test_a_message_that_sqs_does_not_delete_is_named(make_settings: MakeSettings, aws: SimulatedAws) -> None:
    queue = aws.queue()
    queue.send("a", "b")
    ours = TriggerQueue(make_settings(aws_endpoint_url=aws.endpoint), queue.url)
    first, second = ours.receive()

    failed = ours.delete([first, Delivery(second.message_id, "no receipt of this queue", second.body)])

    assert failed == {second.message_id: "ReceiptHandleIsInvalid"}
    assert queue.left() == 1
    told = Taken(Counter({Outcome.OPENED: 2}), undeleted=Counter(failed.values()))
    assert str(told) == ("2 messages: 2 crawls due; 1 could not be deleted and come again (1 ReceiptHandleIsInvalid)")


@pytest.fixture
def settings(make_settings: MakeSettings, aws: SimulatedAws) -> Settings:
    return make_settings(aws_endpoint_url=aws.endpoint)


def test_a_queue_that_is_not_there_or_not_ours_is_a_refusal_that_names_it(
    settings: Settings, aws: SimulatedAws
) -> None:
    missing = aws.queue().url.replace("mustit-triggers", "another")
    with pytest.raises(AwsRefused, match=r"another; look at .*NonExistentQueue"):
        TriggerQueue(settings, missing).receive()

    aws.let_in("0")
    with pytest.raises(AwsRefused, match=r"mustit-triggers; look at .*InvalidClientTokenId"):
        TriggerQueue(settings, missing.replace("another", "mustit-triggers")).receive()


def test_a_queue_that_does_not_answer_is_no_refusal(make_settings: MakeSettings, aws: SimulatedAws) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(AwsUnreachable, match="/queue cannot be reached"):
        TriggerQueue(make_settings(aws_endpoint_url=url), f"{url}/queue").receive()


@pytest.mark.parametrize(("variable", "said"), [("DEFAULT_REGION", "region"), ("SECRET_ACCESS_KEY", "AWS_SECRET")])
def test_who_and_where_we_are_has_to_be_known(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, variable: str, said: str
) -> None:
    monkeypatch.delenv(f"AWS_{variable}")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(AwsRefused, match=said):
        TriggerQueue(settings, "http://127.0.0.1:9/queue").receive()


def test_parked_messages_wait_until_an_operator_dismisses_them(database: Database) -> None:
    with database.transaction() as connection:
        for number, message_id in enumerate(("abc", "abd", "xyz")):
            triggers.remember(connection, "q", message_id, utc_now() - timedelta(minutes=number))
            triggers.park(connection, "q", message_id, ParkReason.NOT_JSON, "x")

    def waiting(*, everything: bool = False) -> list[str]:
        with database.reading() as connection:
            found = triggers.newest_parked(connection, everything=everything, limit=10)
        return [one.message_id for one in found.rows]

    assert waiting() == ["abc", "abd", "xyz"]
    with database.transaction() as connection:
        assert triggers.dismiss(connection, "ab", utc_now()) == ["abc", "abd"]
        assert triggers.dismiss(connection, "abc", utc_now()) == []
    assert waiting() == ["xyz"]
    assert waiting(everything=True) == ["xyz", "abc", "abd"]
