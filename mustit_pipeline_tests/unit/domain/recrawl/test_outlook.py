"""What a budget keeps, and that what is told is what would be needed."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mustit_pipeline.domain.recrawl.learning import HALF_LIFE_HOURS, HIGHEST_FALSE_RATE, LOWEST_RATE
from mustit_pipeline.domain.recrawl.outlook import Group, Means, fetch_age, moved_age, outlook
from mustit_pipeline.domain.recrawl.worth import Listing, value
from mustit_pipeline_tests.unit.domain.recrawl.strategies import listings, rates, weights

WORLD = [Group(sources=1000.0, rate=0.0003 * 3**step, weight=1.0, seen=Listing(0.5, 1e-4)) for step in range(6)]
PLENTY = Means(requests_per_hour=600, look_hours=1, max_age=24, min_chance=0.01)


def test_a_budget_that_is_large_enough_keeps_the_promise() -> None:
    told = outlook(WORLD, PLENTY)
    assert not told.promise_broken
    assert told.kept_age == 24
    assert told.per_hour <= 600 * 1.001
    assert told.needed < 600


def test_where_a_budget_is_too_small_the_kept_age_is_longer_and_what_is_needed_would_keep_the_promise() -> None:
    told = outlook(WORLD, replace(PLENTY, requests_per_hour=100))
    assert told.promise_broken
    assert told.kept_age > 24
    assert not outlook(WORLD, replace(PLENTY, requests_per_hour=told.needed * 1.01)).promise_broken


def test_where_the_promise_is_broken_half_of_the_requests_go_to_the_oldest() -> None:
    """No source that hardly ever changes is fetched by value: 1,000 of them take 200 h at half of 10 an hour."""
    still = [Group(1000, LOWEST_RATE, 1.0, Listing(0.0, 1.0))]
    told = outlook(still, Means(requests_per_hour=10, look_hours=1, max_age=24, min_chance=0.9))
    assert told.kept_age == pytest.approx(200, rel=0.01)


@given(st.floats(20, 5000), st.floats(1.05, 4))
def test_more_requests_make_products_no_older_and_no_staler(requests: float, factor: float) -> None:
    less = outlook(WORLD, replace(PLENTY, requests_per_hour=requests, max_age=10_000))
    more = outlook(WORLD, replace(PLENTY, requests_per_hour=requests * factor, max_age=10_000))
    assert more.kept_age <= less.kept_age * 1.001
    assert more.freshness >= less.freshness - 0.001


def test_the_kept_age_follows_a_broken_promise_slowly_and_a_kept_one_at_once() -> None:
    broken = outlook(WORLD, replace(PLENTY, requests_per_hour=100))
    assert 24 < moved_age(24, broken, 24) < broken.kept_age
    assert moved_age(24, broken, 1e6) == pytest.approx(broken.kept_age)
    assert moved_age(500, outlook(WORLD, PLENTY), 1) == 24


def test_however_long_the_promise_is_a_tenth_of_the_requests_goes_round_by_age_but_no_faster_than_is_forgotten() -> (
    None
):
    sources = sum(group.sources for group in WORLD)
    long = replace(PLENTY, max_age=1e6)
    assert outlook(WORLD, replace(long, requests_per_hour=30)).kept_age == pytest.approx(sources / 3)
    assert outlook(WORLD, long).kept_age == HALF_LIFE_HOURS


@settings(deadline=None, max_examples=20)
@given(st.lists(st.builds(Group, st.floats(1, 1e6), rates, weights, listings), max_size=5), st.floats(0.01, 1e5))
def test_an_outlook_is_finite_whatever_is_stored(groups: list[Group], requests: float) -> None:
    told = outlook(groups, replace(PLENTY, requests_per_hour=requests))
    assert 0 <= told.freshness <= 1
    assert math.isfinite(told.kept_age)
    assert math.isfinite(told.needed)


@given(st.floats(1e-3, 1e2), rates, weights)
def test_a_source_is_worth_the_price_at_its_fetch_age(price: float, rate: float, weight: float) -> None:
    group = Group(1, rate, weight, Listing(0.0, HIGHEST_FALSE_RATE))
    age = fetch_age(group, Means(requests_per_hour=1, look_hours=0, max_age=1, min_chance=0), price)
    unseen = rate * age
    if unseen < 30:
        assert value(unseen, rate, weight) == pytest.approx(price, rel=0.01)
