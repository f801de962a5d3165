"""Back-off."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustit_pipeline.domain.backoff import Tries, backoff_seconds

ATTEMPTS = st.integers(1, 10_000)
BASES = st.floats(0.001, 100)
CAPS = st.floats(0.001, 3600)
JITTERS = st.floats(0, 1, exclude_max=True)


def test_the_pause_doubles_up_to_the_cap() -> None:
    assert [backoff_seconds(attempt, 2, 600, 0) for attempt in range(1, 12)] == [
        *(2, 4, 8, 16, 32, 64, 128, 256, 512),
        *(600, 600),
    ]


def test_jitter_shortens_the_pause_by_up_to_half() -> None:
    assert backoff_seconds(3, 1, 60, 0.5) == 3.0
    assert 2.0 < backoff_seconds(3, 1, 60, 0.999) < 2.01


@given(ATTEMPTS, BASES, CAPS, JITTERS)
def test_the_pause_is_positive_and_never_above_the_cap(attempt: int, base: float, cap: float, jitter: float) -> None:
    assert 0 < backoff_seconds(attempt, base, cap, jitter) <= cap


@given(ATTEMPTS, BASES, CAPS)
def test_without_jitter_a_later_attempt_never_waits_less(attempt: int, base: float, cap: float) -> None:
    assert backoff_seconds(attempt + 1, base, cap, 0) >= backoff_seconds(attempt, base, cap, 0)


@pytest.mark.parametrize("attempt", [0, -1])
def test_attempts_are_counted_from_one(attempt: int) -> None:
    with pytest.raises(ValueError, match="counted from 1"):
        backoff_seconds(attempt, 1, 60, 0)


@pytest.mark.parametrize("jitter", [-0.1, 1, 2, float("nan")])
def test_jitter_outside_its_range_is_refused(jitter: float) -> None:
    with pytest.raises(ValueError, match="jitter"):
        backoff_seconds(1, 1, 60, jitter)


@given(st.integers(1, 20))
def test_a_call_is_tried_as_often_as_its_limit_says(limit: int) -> None:
    tries = Tries(limit)
    made = 1
    tries.failed()
    while tries.can_retry():
        tries.failed()
        made += 1
    assert (made, tries.failures) == (limit, limit)
