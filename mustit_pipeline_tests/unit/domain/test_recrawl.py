"""The recrawl policy: what a source is worth, what fetches teach, what a crawl fetches, what a budget keeps."""

import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mustit_pipeline.domain import recrawl
from mustit_pipeline.domain.recrawl import (
    Arithmetic,
    Candidate,
    Evidence,
    Group,
    Listing,
    Means,
    Reason,
    SellerEvidence,
    Source,
    Terms,
    chosen,
    outlook,
)

NUMPY = cast(Arithmetic, np)

ages = st.floats(0, 1e6)
counts = st.integers(0, 1000)
rates = st.floats(recrawl.LOWEST_RATE, recrawl.HIGHEST_RATE)
weights = st.floats(0.01, 100)
listings = st.builds(
    Listing,
    st.floats(recrawl.LOWEST_SHOWN, recrawl.HIGHEST_SHOWN),
    st.floats(recrawl.LOWEST_FALSE_RATE, recrawl.HIGHEST_FALSE_RATE),
)
sources = st.builds(Source, rates, ages, counts, st.floats(0, recrawl.HIGHEST_RATE))
TRUSTED = Listing(shown=0.5, false_rate=1e-5)


def worth(source: Source, seen: Listing = TRUSTED, weight: float = 1.0) -> float:
    return recrawl.value(recrawl.unseen_changes(source, seen), source.rate, weight)


@given(sources, listings, ages)
def test_an_older_source_is_worth_no_less(source: Source, seen: Listing, longer: float) -> None:
    older = replace(source, age=source.age + longer)
    assert worth(older, seen) >= worth(source, seen) * (1 - 1e-9)


@given(sources, listings, counts)
def test_a_source_with_more_signals_is_worth_no_less(source: Source, seen: Listing, more: int) -> None:
    assert worth(replace(source, signals=source.signals + more), seen) >= worth(source, seen) * (1 - 1e-9)


@given(sources, listings, weights, st.floats(1, 100))
def test_worth_grows_with_weight(source: Source, seen: Listing, weight: float, factor: float) -> None:
    assert worth(source, seen, weight * factor) >= worth(source, seen, weight)


@given(sources, listings)
def test_the_chance_of_an_unseen_change_is_a_chance(source: Source, seen: Listing) -> None:
    assert 0 <= recrawl.change_chance(recrawl.unseen_changes(source, seen)) <= 1


@given(st.floats(1e-9, 1e-2))
def test_tiny_expectations_lose_no_digits(unseen: float) -> None:
    freshness = sum((-1) ** n * (n - 1) / math.factorial(n) * unseen**n for n in range(2, 8))
    staleness = sum((-1) ** n / math.factorial(n) * unseen**n for n in range(2, 8))
    assert recrawl.gain(unseen) == pytest.approx(freshness + recrawl.STALENESS_SHARE * staleness, rel=1e-8)


@given(st.floats(0, 49), st.floats(0, 1))
def test_a_fetch_brings_more_the_more_changes_it_expects(unseen: float, more: float) -> None:
    assert recrawl.gain(unseen + more) >= recrawl.gain(unseen) * (1 - 1e-9)


def test_of_two_sources_that_have_surely_changed_the_one_that_stays_fresh_for_longer_comes_first() -> None:
    slow, fast = Source(rate=0.001, age=1, signals=1), Source(rate=1.0, age=1, signals=1)
    assert worth(slow) > worth(fast)


def test_a_signal_says_less_where_the_other_source_may_have_caused_it() -> None:
    alone = Source(rate=0.01, age=1, signals=1)
    assert worth(replace(alone, other_shown_rate=0.1)) < worth(alone) / 10
    assert recrawl.is_believed(alone, TRUSTED)
    assert not recrawl.is_believed(replace(alone, other_shown_rate=0.1), TRUSTED)


def test_what_the_other_source_may_have_caused_is_hardly_counted_as_a_false_signal() -> None:
    alone = Source(rate=0.01, age=1, signals=1)
    shared = replace(alone, other_shown_rate=0.1)
    assert recrawl.fetched_evidence(alone, TRUSTED, 0.0).false_signals == 1
    assert recrawl.fetched_evidence(shared, TRUSTED, 0.0).false_signals < 0.001


def test_a_source_just_fetched_is_worth_nothing() -> None:
    assert worth(Source(rate=0.1, age=0, signals=0)) == 0


def test_a_product_in_stock_comes_before_one_sold_out_and_a_recent_change_and_a_boost_count() -> None:
    plain = recrawl.weight(True, 1000)
    assert recrawl.weight(False, 1000) < plain < recrawl.weight(True, 1)
    assert recrawl.weight(True, 1000, boost=3) == 3 * plain


@given(sources, listings, st.sampled_from([0.0, 1.0]))
def test_a_fetch_teaches_finite_numbers(source: Source, seen: Listing, changed: float) -> None:
    said = recrawl.fetched_evidence(source, seen, changed)
    numbers = (said.shown_changes, said.changes, said.false_signals, said.hours)
    assert all(math.isfinite(number) and number >= 0 for number in numbers)
    assert said.shown_changes <= said.changes
    assert said.changes >= changed * (1 - 1e-9)
    assert changed or said.changes == 0


@given(st.floats(0, 1e9), st.floats(0, 1e9), rates)
def test_estimates_stay_within_their_limits(changes: float, hours: float, prior: float) -> None:
    rate = recrawl.source_rate(Evidence(changes, hours), prior)
    assert recrawl.LOWEST_RATE <= rate <= recrawl.HIGHEST_RATE
    seen = recrawl.listing(SellerEvidence(changes, hours, changes, changes, changes, changes, changes))
    assert recrawl.LOWEST_SHOWN <= seen.shown <= recrawl.HIGHEST_SHOWN
    assert recrawl.LOWEST_FALSE_RATE <= seen.false_rate <= recrawl.HIGHEST_FALSE_RATE


def test_half_of_the_evidence_is_forgotten_after_its_half_life() -> None:
    assert recrawl.kept_share(recrawl.HALF_LIFE_HOURS) == pytest.approx(0.5)
    assert recrawl.kept_share(0) == 1
    assert recrawl.kept_share(1e9) > 0


@pytest.mark.parametrize("rate", [0.002, 0.02, 0.2])
def test_a_change_rate_is_learnt_from_fetches_that_say_only_changed_or_not(rate: float) -> None:
    chance = random.Random(7)
    seen = recrawl.listing(SellerEvidence())
    seen = replace(seen, shown=recrawl.LOWEST_SHOWN)
    evidence = Evidence()
    for _ in range(2000):
        age = chance.uniform(0.2, 2) / rate
        believed = recrawl.source_rate(evidence, 0.01)
        changed = float(chance.random() < 1 - math.exp(-rate * age))
        said = recrawl.fetched_evidence(Source(believed, age, 0), seen, changed)
        evidence = recrawl.learnt(evidence, said, kept=0.999)
    assert recrawl.source_rate(evidence, 0.01) == pytest.approx(rate, rel=0.15)


@pytest.mark.parametrize(("shown", "false_rate"), [(0.9, 0.0005), (0.5, 0.002), (0.1, 0.005), (0.1, 0.02), (0.0, 0.05)])
def test_a_listing_is_learnt_from_what_fetches_found(shown: float, false_rate: float) -> None:
    """200 sources are fetched at each signal, seen at hourly looks, and every two days in any case."""
    chance = random.Random(5)
    rate, total, evidence = 0.02, SellerEvidence(), [Evidence()] * 200
    age, signals, stale = [0.0] * 200, [0] * 200, [False] * 200
    for _hour in range(600):
        seen, prior = recrawl.listing(total), recrawl.seller_rate(total)
        for one in range(200):
            age[one] += 1
            visible = chance.random() < rate * shown
            stale[one] |= visible or chance.random() < rate * (1 - shown)
            signals[one] += visible or chance.random() < false_rate
            if not signals[one] and age[one] < 48:
                continue
            source = Source(recrawl.source_rate(evidence[one], prior), age[one], signals[one])
            said = recrawl.fetched_evidence(source, seen, float(stale[one]))
            evidence[one] = recrawl.learnt(evidence[one], said, 1.0)
            total = recrawl.learnt_of_seller(total, said, 1.0)
            age[one], signals[one], stale[one] = 0.0, 0, False
    learnt = recrawl.listing(total)
    assert recrawl.seller_rate(total) == pytest.approx(rate, rel=0.2)
    assert learnt.shown == pytest.approx(shown, abs=0.25)
    assert learnt.false_rate == pytest.approx(false_rate, rel=0.3)


@given(st.lists(st.tuples(sources, listings, weights), min_size=1, max_size=20))
def test_arrays_give_what_numbers_give(cases: list[tuple[Source, Listing, float]]) -> None:
    def column(read: Callable[[Source, Listing, float], float]) -> Any:
        return np.array([read(*case) for case in cases], float)

    many = Source(
        column(lambda s, _l, _w: s.rate),
        column(lambda s, _l, _w: s.age),
        column(lambda s, _l, _w: s.signals),
        column(lambda s, _l, _w: s.other_shown_rate),
    )
    seen = Listing(column(lambda _s, seen, _w: seen.shown), column(lambda _s, seen, _w: seen.false_rate))
    unseen: Any = recrawl.unseen_changes(many, seen, NUMPY)
    values: Any = recrawl.value(unseen, many.rate, column(lambda _s, _l, weight: weight), arithmetic=NUMPY)
    said = recrawl.fetched_evidence(many, seen, 1.0, NUMPY)
    believed: Any = recrawl.is_believed(many, seen, NUMPY)
    for n, (source, its_listing, weight) in enumerate(cases):
        assert values[n] == pytest.approx(worth(source, its_listing, weight), rel=1e-9)
        one = recrawl.fetched_evidence(source, its_listing, 1.0)
        assert cast(Any, said.changes)[n] == pytest.approx(one.changes, rel=1e-9)
        assert bool(believed[n]) == recrawl.is_believed(source, its_listing)


TERMS = Terms(
    allowance=100, price=1.0, kept_age=24, promise_broken=False, look_hours=1, promise_rate=10, min_chance=0.01
)
NEW = Candidate(1, None, 0, 0, believed=False)
SIGNALLED = Candidate(2, 3, 50, 0.9, believed=True)
OLD = Candidate(3, 22, 0.1, 0.2, believed=False)
WORTHY = Candidate(4, 5, 2, 0.2, believed=False)
WORTHIER = Candidate(5, 5, 3, 0.2, believed=False)
CHEAP = Candidate(6, 5, 0.5, 0.2, believed=False)
UNLIKELY = Candidate(7, 5, 9, 0.005, believed=False)
ALL = [UNLIKELY, CHEAP, WORTHY, WORTHIER, OLD, SIGNALLED, NEW]


def test_a_crawl_fetches_new_and_signalled_ones_then_those_too_old_then_by_value() -> None:
    assert [(one.key, one.reason) for one in chosen(ALL, TERMS)] == [
        (1, Reason.NEW),
        (2, Reason.SIGNALLED),
        (3, Reason.AGE),
        (5, Reason.VALUE),
        (4, Reason.VALUE),
    ]


def test_a_crawl_fetches_no_more_than_its_allowance() -> None:
    assert [one.key for one in chosen(ALL, replace(TERMS, allowance=3))] == [1, 2, 3]
    assert chosen(ALL, replace(TERMS, allowance=-1)) == []


def test_an_unlikely_change_is_not_fetched_however_many_requests_there_are_unless_its_age_demands_it() -> None:
    assert 7 not in {one.key for one in chosen(ALL, replace(TERMS, price=0))}
    aged = replace(UNLIKELY, age=22)
    assert [one.reason for one in chosen([aged], TERMS)] == [Reason.AGE]


def test_a_source_about_to_break_the_promise_comes_before_signals_unless_the_promise_is_broken_anyway() -> None:
    late = replace(OLD, age=23)
    assert [one.reason for one in chosen([SIGNALLED, late], TERMS)] == [Reason.LATE, Reason.SIGNALLED]
    broken = replace(TERMS, promise_broken=True)
    assert [one.reason for one in chosen([SIGNALLED, late], broken)] == [Reason.SIGNALLED, Reason.AGE]


def test_where_the_promise_is_broken_the_oldest_and_the_most_valuable_take_turns() -> None:
    old = [Candidate(n, 100 + n, 0.1, 0.2, believed=False) for n in range(10)]
    worthy = [Candidate(n, 1, n, 0.2, believed=False) for n in range(100, 110)]
    keys = [one.key for one in chosen(old + worthy, replace(TERMS, promise_broken=True, allowance=6))]
    assert keys == [9, 109, 8, 108, 7, 107]


def test_the_oldest_are_fetched_early_and_evenly_enough_for_the_last_of_them() -> None:
    """100 sources of one age at ten an hour take ten hours, and have to be through at 95 % of 24 h, one look early."""
    alike = [Candidate(n, 11.7, 0.0, 0.0, believed=False) for n in range(100)]
    assert chosen(alike, TERMS) == []
    assert len(chosen([replace(one, age=14.75) for one in alike], TERMS)) == 30
    assert len(chosen([replace(one, age=23) for one in alike], TERMS)) == 100


@given(st.lists(st.floats(0, 30), max_size=60), st.floats(0.1, 20))
def test_no_source_passes_the_kept_age_while_the_promise_gets_its_requests(ages: list[float], rate: float) -> None:
    """Looks every hour, each followed by what it chose: afterwards no source is late that was not late at first."""
    terms = replace(TERMS, promise_rate=rate, allowance=10**6)
    start = {n: age for n, age in enumerate(ages) if age < 22}
    now = dict(start)
    for _ in range(48):
        for choice in chosen([Candidate(n, age, 0.0, 0.0, believed=False) for n, age in now.items()], terms):
            now[choice.key] = 0.0
        now = {n: age + 1 for n, age in now.items()}
        assert all(age <= 24 for age in now.values())


def test_a_seller_is_due_by_its_interval_or_earlier_for_its_oldest_source() -> None:
    assert recrawl.hours_until_due(24, hours=4, kept_age=168, oldest_age=100) == 20
    assert recrawl.hours_until_due(24, hours=4, kept_age=100, oldest_age=90) == pytest.approx(5)


@pytest.mark.parametrize(("share", "counted"), [(0, 10), (15, 15), (1000, 20)])
def test_the_promise_counts_on_the_share_of_the_pool_from_once_to_twice_what_it_takes(
    share: float, counted: int
) -> None:
    assert recrawl.promise_rate(100, kept_age=10, share=share) == counted


def test_the_price_rises_with_demand_falls_without_it_and_stays_within_limits() -> None:
    assert recrawl.moved_price(1, 20, 10, 1) > 1 > recrawl.moved_price(1, 5, 10, 1)
    assert recrawl.moved_price(1, 10, 10, 1) == 1
    assert recrawl.moved_price(recrawl.HIGHEST_PRICE, 1e9, 0, 1e9) == recrawl.HIGHEST_PRICE
    assert recrawl.moved_price(recrawl.LOWEST_PRICE, 0, 1e9, 1e9) == recrawl.LOWEST_PRICE


@given(st.floats(1, 1e6), rates, st.floats(0.001, 0.98), ages, ages)
def test_a_sweep_is_worth_more_the_later_it_comes(
    sources: float, rate: float, shown: float, hours: float, more: float
) -> None:
    now = recrawl.sweep_value(sources, rate, shown, hours)
    assert recrawl.sweep_value(sources, rate, shown, hours + more) >= now * (1 - 1e-9)


def test_a_listing_that_shows_more_is_swept_sooner() -> None:
    blind, clear = (recrawl.sweep_value(500, 0.01, shown, 2) for shown in (0.01, 0.8))
    assert clear > 10 * blind
    assert recrawl.is_light_crawl_due(recrawl.light_crawl_value(clear, 1, 2, 5, 1.5), 1.5, 2)
    assert not recrawl.is_light_crawl_due(recrawl.light_crawl_value(blind, 1, 2, 5, 1.5), 1.5, 2)
    assert not recrawl.is_light_crawl_due(1e9, 1.5, 0.5)


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
    still = [Group(1000, recrawl.LOWEST_RATE, 1.0, Listing(0.0, 1.0))]
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
    assert 24 < recrawl.moved_age(24, broken, 24) < broken.kept_age
    assert recrawl.moved_age(24, broken, 1e6) == pytest.approx(broken.kept_age)
    assert recrawl.moved_age(500, outlook(WORLD, PLENTY), 1) == 24


def test_however_long_the_promise_is_a_tenth_of_the_requests_goes_round_by_age_but_no_faster_than_is_forgotten() -> (
    None
):
    sources = sum(group.sources for group in WORLD)
    long = replace(PLENTY, max_age=1e6)
    assert outlook(WORLD, replace(long, requests_per_hour=30)).kept_age == pytest.approx(sources / 3)
    assert outlook(WORLD, long).kept_age == recrawl.HALF_LIFE_HOURS


@settings(deadline=None, max_examples=20)
@given(st.lists(st.builds(Group, st.floats(1, 1e6), rates, weights, listings), max_size=5), st.floats(0.01, 1e5))
def test_an_outlook_is_finite_whatever_is_stored(groups: list[Group], requests: float) -> None:
    told = outlook(groups, replace(PLENTY, requests_per_hour=requests))
    assert 0 <= told.freshness <= 1
    assert math.isfinite(told.kept_age)
    assert math.isfinite(told.needed)


@given(st.floats(1e-3, 1e2), rates, weights)
def test_a_source_is_worth_the_price_at_its_fetch_age(price: float, rate: float, weight: float) -> None:
    group = Group(1, rate, weight, Listing(0.0, recrawl.HIGHEST_FALSE_RATE))
    age = recrawl.fetch_age(group, Means(requests_per_hour=1, look_hours=0, max_age=1, min_chance=0), price)
    unseen = rate * age
    if unseen < 30:
        assert recrawl.value(unseen, rate, weight) == pytest.approx(price, rel=0.01)
