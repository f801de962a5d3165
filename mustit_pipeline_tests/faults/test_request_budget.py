"""Short version of the benchmarks: contenders do what they are timed for, the budget holds, memory stays bounded."""

import pytest

from benchmarks import budget, crawl, memory, relay
from benchmarks.budget import QUICK, SCENARIOS, Scenario

# In windows of seconds it is the machine that is short, and a hand-over takes as long as a window: how much of the
# budget is used is shown by `make bench`, in windows of a minute. Here it only must not stand still.
LEAST_SHARE = 0.3
QUICK_PRODUCTS = 150
RACED_PRODUCTS = 60
RACED_EVENTS = 300


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[scenario.name for scenario in SCENARIOS])
def test_with_more_work_than_budget_it_is_spent_and_never_exceeded(scenario: Scenario) -> None:
    spent = budget.run(QUICK, [scenario])
    exceeded = [target for target in spent.targets() if target.at_least is None and not target.is_met]
    assert exceeded == []
    assert all(spending.share >= LEAST_SHARE for spending in spent.spendings)


def test_ten_times_the_products_need_little_more_memory() -> None:
    assert memory.run(QUICK_PRODUCTS).ratio <= memory.MOST


def test_every_contender_of_the_race_makes_every_request_once_and_finds_exactly_what_changed() -> None:
    """No time is judged here: a ratio of a crawl of two seconds on a busy machine says nothing."""
    race = crawl.run(RACED_PRODUCTS, 1)

    for name in crawl.MODULES:
        assert [len(outcome.created) for outcome in race.outcomes[crawl.FIRST][name]] == [RACED_PRODUCTS]
        assert [len(outcome.changed) for outcome in race.outcomes[crawl.AGAIN][name]] == [1]


def test_every_contender_of_the_relay_race_sends_every_event_once_and_the_same_bytes() -> None:
    """The race itself refuses a contender that sent anything else; no time is judged here."""
    race = relay.run(RACED_EVENTS, 1)

    assert {len(outcomes) for found in race.outcomes.values() for outcomes in found.values()} == {1}
