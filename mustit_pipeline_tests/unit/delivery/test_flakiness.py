"""A flaky server is one whose failures heal; nothing else gives an event more tries than it has."""

import pytest

from mustit_pipeline.delivery.flakiness import is_flaky, may_be_chance
from mustit_pipeline.delivery.product_server import Answer, Verdict
from mustit_pipeline.store.settlements import Deliveries


@pytest.mark.parametrize(
    ("delivered", "recovered", "flaky"),
    [
        (0, 0, False),
        (200, 0, False),
        (2, 2, False),
        (3, 3, True),
        (60, 3, True),
        (61, 3, False),
        (200, 9, False),
        (200, 10, True),
        (200, 66, True),
    ],
)
def test_a_server_is_flaky_where_enough_of_what_it_took_had_failed_first(
    delivered: int, recovered: int, flaky: bool
) -> None:
    assert is_flaky(Deliveries(delivered, recovered)) is flaky


@pytest.mark.parametrize(
    ("verdict", "status", "chance"),
    [
        (Verdict.RETRY, 503, True),
        (Verdict.RETRY, 429, True),
        (Verdict.RETRY, None, True),
        (Verdict.UNREACHABLE, None, True),
        (Verdict.RETRY, 422, False),
        (Verdict.REFUSED, 400, False),
    ],
)
def test_only_a_failure_that_says_nothing_about_the_event_may_be_chance(
    verdict: Verdict, status: int | None, chance: bool
) -> None:
    assert may_be_chance(Answer(verdict, status, "because")) is chance
