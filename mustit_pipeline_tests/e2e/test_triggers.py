"""`mustit triggers`, and what doctor says about parked messages."""

from collections.abc import Generator

import pytest
from sqlalchemy import text

from mustit_pipeline.domain.errors import NotFound
from mustit_pipeline.domain.trigger import ParkReason
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.scheduling.sql import triggers
from mustit_pipeline_tests.e2e.asking import ask
from mustit_pipeline_tests.e2e.conftest import World

QUEUE = "https://sqs.ap-northeast-2.amazonaws.com/123456789012/mustit-triggers"


@pytest.fixture(autouse=True)
def parked(world: World) -> Generator[None]:
    """Two parked messages."""
    with world.database.transaction() as connection:
        for message_id, reason in (("11aa", ParkReason.NOT_JSON), ("22bb", ParkReason.UNKNOWN_SELLER)):
            triggers.remember(connection, QUEUE, message_id, utc_now())
            triggers.park(connection, QUEUE, message_id, reason, f"[{message_id}]")
    yield
    with world.database.transaction() as connection:
        connection.execute(text("DELETE FROM trigger_messages"))


def doctors_findings(world: World) -> list[tuple[str, str]]:
    found = ask(world, "doctor", "--json").document
    return [(one["health"], one["detail"]) for one in found if one["subject"] == "trigger queue"]


def test_parked_messages_are_listed_and_dismissed(world: World) -> None:
    [second, first] = ask(world, "triggers", "list", "--json").document
    assert (first["messageId"], first["reason"], first["body"]) == ("11aa", "NOT_JSON", "[11aa]")
    assert (second["queue"], second["dismissedAt"]) == (QUEUE, None)
    assert "[22bb]" in ask(world, "triggers", "list").out
    assert doctors_findings(world) == [("warning", "parked messages: 1 NOT_JSON, 1 UNKNOWN_SELLER")]

    assert ask(world, "triggers", "dismiss", "11", "--json").document == {"dismissed": ["11aa"]}
    with pytest.raises(NotFound, match="begins with 11"):
        ask(world, "triggers", "dismiss", "11")
    assert len(ask(world, "triggers", "list", "--all", "--json").document) == 2
    assert ask(world, "triggers", "dismiss", "--all").out == "1 messages dismissed.\n"

    assert ask(world, "triggers", "list").out == "No message is parked.\n"
    assert ask(world, "triggers", "dismiss", "--all").out == "No message is parked.\n"
    assert doctors_findings(world) == []


def test_either_a_message_or_all_of_them_are_dismissed(world: World) -> None:
    for arguments in ((), ("11aa", "--all")):
        assert ask(world, "triggers", "dismiss", *arguments).code == 2


def test_doctor_says_when_no_queue_takes_what_the_rules_send(world: World) -> None:
    arn = "arn:aws:sqs:ap-northeast-2:123456789012:mustit-triggers"
    answer = world.mustit("doctor", "--json", MUSTIT_TRIGGER="eventbridge", MUSTIT_TRIGGER_TARGET_ARN=arn)

    [found] = [one for one in answer.document if one["subject"] == "EventBridge"]
    assert (found["health"], found["detail"]) == ("warning", "its rules fire, but no queue is looked at")
