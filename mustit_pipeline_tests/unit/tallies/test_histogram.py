"""Durations in buckets: nothing is lost by adding, and a share is estimated within its bucket."""

from statistics import quantiles

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustit_pipeline.tallies.histogram import Histogram
from mustit_pipeline.tallies.sql.tallies import Subject

BOUNDS = Subject.FETCH.bounds
durations = st.lists(st.floats(0, 60), max_size=50)


@given(durations, durations)
def test_two_histograms_add_up_to_that_of_all_durations(first: list[float], second: list[float]) -> None:
    added = Histogram.of(first, BOUNDS) + Histogram.of(second, BOUNDS)
    whole = Histogram.of(first + second, BOUNDS)
    assert added.number == whole.number
    assert sum(added.buckets) == sum(whole.buckets) == added.number
    assert added.seconds == pytest.approx(whole.seconds)


@given(st.lists(st.floats(0, 29), min_size=2, max_size=200))
def test_the_estimated_p95_lies_in_the_bucket_of_the_real_one(found: list[float]) -> None:
    estimate = Histogram.of(found, BOUNDS).quantile(0.95, BOUNDS)
    assert estimate is not None
    ordered = sorted(found)
    real = ordered[-(-95 * len(ordered) // 100) - 1]
    edges = (0.0, *BOUNDS)
    place = next(number for number, bound in enumerate(BOUNDS) if real <= bound)
    assert edges[place] <= estimate <= edges[place + 1]


def test_inside_of_a_bucket_durations_are_taken_as_evenly_spread() -> None:
    even = [0.5 + 0.5 * number / 100 for number in range(1, 101)]
    assert Histogram.of(even, (0.5, 1.0)).quantile(0.95, (0.5, 1.0)) == pytest.approx(quantiles(even, n=20)[-1], 0.01)


def test_without_durations_there_is_no_share_and_beyond_the_last_bound_it_is_that() -> None:
    assert Histogram().quantile(0.95, BOUNDS) is None
    assert Histogram.of([100.0], BOUNDS).quantile(0.95, BOUNDS) == BOUNDS[-1]


def test_a_duration_at_a_bound_belongs_to_the_bucket_that_ends_there() -> None:
    assert Histogram.of([5.0], (1.0, 5.0)).buckets == (0, 1, 0)
