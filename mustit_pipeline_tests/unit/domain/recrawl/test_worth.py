"""What a fetch is worth: more with age, signals and weight, in floats and in arrays alike."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustit_pipeline.domain.recrawl.learning import fetched_evidence
from mustit_pipeline.domain.recrawl.worth import (
    STALENESS_SHARE,
    Listing,
    Source,
    change_chance,
    gain,
    is_believed,
    unseen_changes,
    value,
    weight,
)
from mustit_pipeline_tests.unit.domain.recrawl.strategies import (
    NUMPY,
    TRUSTED,
    ages,
    counts,
    listings,
    sources,
    weights,
)


def worth_of(source: Source, seen: Listing = TRUSTED, weight: float = 1.0) -> float:
    return value(unseen_changes(source, seen), source.rate, weight)


@given(sources, listings, ages)
def test_an_older_source_is_worth_no_less(source: Source, seen: Listing, longer: float) -> None:
    older = replace(source, age=source.age + longer)
    assert worth_of(older, seen) >= worth_of(source, seen) * (1 - 1e-9)


@given(sources, listings, counts)
def test_a_source_with_more_signals_is_worth_no_less(source: Source, seen: Listing, more: int) -> None:
    assert worth_of(replace(source, signals=source.signals + more), seen) >= worth_of(source, seen) * (1 - 1e-9)


@given(sources, listings, weights, st.floats(1, 100))
def test_worth_grows_with_weight(source: Source, seen: Listing, weight: float, factor: float) -> None:
    assert worth_of(source, seen, weight * factor) >= worth_of(source, seen, weight)


@given(sources, listings)
def test_the_chance_of_an_unseen_change_is_a_chance(source: Source, seen: Listing) -> None:
    assert 0 <= change_chance(unseen_changes(source, seen)) <= 1


@given(st.floats(1e-9, 1e-2))
def test_tiny_expectations_lose_no_digits(unseen: float) -> None:
    freshness = sum((-1) ** n * (n - 1) / math.factorial(n) * unseen**n for n in range(2, 8))
    staleness = sum((-1) ** n / math.factorial(n) * unseen**n for n in range(2, 8))
    assert gain(unseen) == pytest.approx(freshness + STALENESS_SHARE * staleness, rel=1e-8)


@given(st.floats(0, 49), st.floats(0, 1))
def test_a_fetch_brings_more_the_more_changes_it_expects(unseen: float, more: float) -> None:
    assert gain(unseen + more) >= gain(unseen) * (1 - 1e-9)


def test_of_two_sources_that_have_surely_changed_the_one_that_stays_fresh_for_longer_comes_first() -> None:
    slow, fast = Source(rate=0.001, age=1, signals=1), Source(rate=1.0, age=1, signals=1)
    assert worth_of(slow) > worth_of(fast)


def test_a_signal_says_less_where_the_other_source_may_have_caused_it() -> None:
    alone = Source(rate=0.01, age=1, signals=1)
    assert worth_of(replace(alone, other_shown_rate=0.1)) < worth_of(alone) / 10
    assert is_believed(alone, TRUSTED)
    assert not is_believed(replace(alone, other_shown_rate=0.1), TRUSTED)


def test_a_source_just_fetched_is_worth_nothing() -> None:
    assert worth_of(Source(rate=0.1, age=0, signals=0)) == 0


def test_a_product_in_stock_comes_before_one_sold_out_and_a_recent_change_and_a_boost_count() -> None:
    plain = weight(True, 1000)
    assert weight(False, 1000) < plain < weight(True, 1)
    assert weight(True, 1000, boost=3) == 3 * plain


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
    unseen: Any = unseen_changes(many, seen, NUMPY)
    values: Any = value(unseen, many.rate, column(lambda _s, _l, weight: weight), arithmetic=NUMPY)
    said = fetched_evidence(many, seen, 1.0, NUMPY)
    believed: Any = is_believed(many, seen, NUMPY)
    for n, (source, its_listing, weighs) in enumerate(cases):
        assert values[n] == pytest.approx(worth_of(source, its_listing, weighs), rel=1e-9)
        one = fetched_evidence(source, its_listing, 1.0)
        assert cast(Any, said.changes)[n] == pytest.approx(one.changes, rel=1e-9)
        assert bool(believed[n]) == is_believed(source, its_listing)
