"""Storms: when it is the host, and how long it is left alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustit_pipeline.domain.storm import StormRules

SPECIFIED = StormRules()


@pytest.mark.parametrize(
    ("agents", "throttled", "answers", "storm"),
    [(5, 5, 10, True), (4, 9, 10, False), (5, 5, 11, False), (50, 50, 50, True), (5, 5, 5, True)],
)
def test_five_agents_and_half_of_the_answers_are_a_storm(
    agents: int, throttled: int, answers: int, storm: bool
) -> None:
    assert SPECIFIED.is_storm(agents=agents, throttled=throttled, answers=answers) is storm


@pytest.mark.parametrize(("in_a_row", "storm"), [(9, False), (10, True)])
def test_twice_as_many_agents_in_a_row_are_a_storm_however_many_good_answers_came_before(
    in_a_row: int, storm: bool
) -> None:
    assert SPECIFIED.is_storm(agents=in_a_row, throttled=in_a_row, answers=300, in_a_row=in_a_row) is storm


def test_agents_in_a_row_are_a_storm_however_few_of_them_the_last_seconds_hold() -> None:
    assert SPECIFIED.is_storm(agents=1, throttled=1, answers=1, in_a_row=10)


def test_what_a_storm_is_can_be_set() -> None:
    rules = StormRules(agents=2, share=0.25)
    assert rules.is_storm(agents=2, throttled=2, answers=8)
    assert not rules.is_storm(agents=1, throttled=8, answers=8)
    assert not rules.is_storm(agents=2, throttled=2, answers=9)


@pytest.mark.parametrize(
    ("agents", "available", "outage"), [(4, 50, False), (5, 50, True), (2, 2, True), (1, 2, False), (1, 1, False)]
)
def test_five_agents_or_all_there_are_make_an_outage_but_never_one_alone(
    agents: int, available: int, outage: bool
) -> None:
    assert SPECIFIED.is_outage(agents=agents, available=available) is outage


@pytest.mark.parametrize(("level", "seconds"), [(0, 2), (1, 4), (8, 512), (9, 600), (20, 600)])
def test_a_pause_doubles_up_to_ten_minutes(level: int, seconds: float) -> None:
    assert SPECIFIED.pause(level, 0.0) == seconds


def test_the_pauses_can_be_set() -> None:
    rules = StormRules(pause_seconds=3, longest_pause_seconds=10, calm_seconds=1)
    assert [rules.pause(level, 0.0) for level in range(3)] == [3, 6, 10]
    assert rules.next_level(4, last_pause=0, since_pause=1) == 0
    assert rules.next_level(4, last_pause=2, since_pause=1) == 5


@given(st.integers(0, 20), st.floats(0, 86_400))
def test_a_pause_is_never_shorter_than_the_host_asks_for(level: int, asked: float) -> None:
    assert SPECIFIED.pause(level, asked) >= asked


@given(st.integers(0, 10**6), st.floats(0, 59))
def test_without_a_calm_minute_the_level_rises_until_the_longest_pause(level: int, since: float) -> None:
    assert SPECIFIED.next_level(level, last_pause=0, since_pause=since) == min(level + 1, 20)
