"""Short version of the benchmarks: contenders do what they are timed for, the budget holds, memory stays bounded."""

from benchmarks import budget, crawl, memory
from benchmarks.budget import QUICK, SCENARIOS

# In windows of seconds it is the machine that is short, and a hand-over takes as long as a window: how much of the
# budget is used is shown by `make bench`, in windows of a minute. Here it only must not stand still.
LEAST_SHARE = 0.3
QUICK_PRODUCTS = 150
RACED_PRODUCTS = 60


def test_with_more_work_than_budget_it_is_spent_and_never_exceeded() -> None:
    """The hardest of the scenarios: several workers, and the counter of their requests is lost."""
    spent = budget.run(QUICK, [SCENARIOS[-1]])
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
