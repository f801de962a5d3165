"""What a crawl fetches, in which order, and that no source passes the promised age."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustit_pipeline.domain.recrawl.choosing import Candidate, Reason, Terms, chosen, hours_until_due, promise_rate

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
    assert hours_until_due(24, hours=4, kept_age=168, oldest_age=100) == 20
    assert hours_until_due(24, hours=4, kept_age=100, oldest_age=90) == pytest.approx(5)


@pytest.mark.parametrize(("share", "counted"), [(0, 10), (15, 15), (1000, 20)])
def test_the_promise_counts_on_the_share_of_the_pool_from_once_to_twice_what_it_takes(
    share: float, counted: int
) -> None:
    assert promise_rate(100, kept_age=10, share=share) == counted
