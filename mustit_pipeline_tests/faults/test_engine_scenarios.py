"""The short version of every fault scenario of the crawl engine; `make chaos` runs the long one."""

from collections.abc import Callable

import pytest

from mustit_pipeline_tests.faults.engine_scenarios import ENGINE_SCENARIOS
from mustit_pipeline_tests.faults.recrawl_scenarios import RECRAWL_SCENARIOS
from mustit_pipeline_tests.faults.scenarios import QUICK, Numbers, Size
from mustit_pipeline_tests.faults.throttling_scenarios import THROTTLING_SCENARIOS
from mustit_pipeline_tests.faults.world import World, fresh_world

ALL = (*ENGINE_SCENARIOS, *THROTTLING_SCENARIOS, *RECRAWL_SCENARIOS)


@pytest.mark.parametrize("scenario", ALL, ids=[scenario.__name__ for scenario in ALL])
def test_every_promise_holds_through(scenario: Callable[[World, Size], Numbers]) -> None:
    with fresh_world() as world:
        assert scenario(world, QUICK)
