"""The short version of two benchmarks that are promises: the whole request budget is used, and memory stays bounded."""

import pytest

from benchmarks import budget, memory
from benchmarks.budget import SCENARIOS, Plan, Scenario

# So few requests that the budget and not the machine is what is short. Redis dies when a window's share is spent:
# what may have been sent counts as sent, and of so small a share that would be too much for the 99 %.
QUICK = Plan(window=4.0, windows=3, requests=6, kill_after=2.4)
# On a machine that is busy with something else it is the machine after all, and only a longer window shows the rest.
PATIENT = Plan(window=15.0, windows=3, requests=6, kill_after=9.0)
QUICK_PRODUCTS = 150


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[scenario.name for scenario in SCENARIOS])
def test_with_more_work_than_budget_all_of_it_is_used_and_never_more(scenario: Scenario) -> None:
    for plan in (QUICK, PATIENT):
        spent = budget.run(plan, [scenario])
        missed = [target for target in spent.targets() if not target.is_met]
        # Being over a limit, or throttled for it, is never the machine's fault.
        assert [target for target in missed if target.at_least is None] == []
        if not missed:
            break
    assert missed == []


def test_ten_times_the_products_need_little_more_memory() -> None:
    assert memory.run(QUICK_PRODUCTS).ratio <= memory.MOST
