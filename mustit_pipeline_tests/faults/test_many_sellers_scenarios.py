"""The short version of every fault scenario of many sellers; `make chaos` runs the long one."""

from collections.abc import Callable

import pytest

from mustit_pipeline_tests.faults.backfill_scenarios import BACKFILL_SCENARIOS
from mustit_pipeline_tests.faults.many_sellers_scenarios import MANY_SELLERS_SCENARIOS
from mustit_pipeline_tests.faults.scenarios import QUICK, Numbers, Size
from mustit_pipeline_tests.faults.world import World, fresh_world

ALL = (*MANY_SELLERS_SCENARIOS, *BACKFILL_SCENARIOS)


@pytest.mark.parametrize("scenario", ALL, ids=[scenario.__name__ for scenario in ALL])
def test_every_promise_holds_through(scenario: Callable[[World, Size], Numbers]) -> None:
    with fresh_world() as world:
        assert scenario(world, QUICK)
