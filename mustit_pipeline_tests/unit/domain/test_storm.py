"""Storms: when it is the host, and how long it is left alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustit_pipeline.domain.storm import Refused, StormRules, product_of

SPECIFIED = StormRules()


NONE = Refused(answers=0, agents=0, urls=0)


def refused(answers: int, agents: int | None = None, urls: int | None = None) -> Refused:
    return Refused(
        answers=answers, agents=answers if agents is None else agents, urls=answers if urls is None else urls
    )


@pytest.mark.parametrize(
    ("seen", "answers", "storm"),
    [
        (refused(5), 10, True),
        (refused(9, agents=4), 10, False),
        (refused(9, urls=4), 10, False),
        (refused(5), 11, False),
        (refused(50), 50, True),
        (refused(50, agents=5, urls=5), 50, True),
    ],
)
def test_five_agents_at_five_urls_and_half_of_the_answers_are_a_storm(seen: Refused, answers: int, storm: bool) -> None:
    assert SPECIFIED.is_storm(seen, answers=answers, in_a_row=NONE) is storm


@pytest.mark.parametrize(("row", "storm"), [(refused(9), False), (refused(10), True), (refused(50, urls=4), False)])
def test_twice_as_many_agents_in_a_row_are_a_storm_however_many_good_answers_came_before(
    row: Refused, storm: bool
) -> None:
    assert SPECIFIED.is_storm(row, answers=300, in_a_row=row) is storm


def test_agents_in_a_row_are_a_storm_however_few_of_them_the_last_seconds_hold() -> None:
    assert SPECIFIED.is_storm(refused(1), answers=1, in_a_row=refused(10))


def test_what_a_storm_is_can_be_set() -> None:
    rules = StormRules(agents=2, urls=1, share=0.25)
    assert rules.is_storm(refused(2, urls=1), answers=8, in_a_row=NONE)
    assert not rules.is_storm(refused(8, agents=1), answers=8, in_a_row=NONE)
    assert not rules.is_storm(refused(2), answers=9, in_a_row=NONE)


COUNTS = st.integers(0, 100)


@given(COUNTS, COUNTS, COUNTS, COUNTS)
def test_429s_of_fewer_than_five_products_or_pages_are_never_a_storm(
    answers: int, agents: int, good: int, urls: int
) -> None:
    seen = Refused(answers=answers, agents=agents, urls=urls)
    if SPECIFIED.is_storm(seen, answers=answers + good, in_a_row=seen):
        assert urls >= SPECIFIED.urls
        assert agents >= SPECIFIED.agents


@pytest.mark.parametrize(
    ("url", "product"),
    [
        ("https://m/mustit-api/facade-api/v1/item/41/detail/top", "41"),
        ("/mustit-api/legacy-api/v1/auction_products/41/options", "41"),
        ("/mustit-api/facade-api/v1/searchmini-shop-search?sellerId=item&pageNo=41", None),
        ("the session of 41", None),
    ],
)
def test_detail_and_options_are_one_product_and_a_listing_is_none(url: str, product: str | None) -> None:
    assert product_of(url) == product


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
