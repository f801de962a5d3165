"""The short version of every fault scenario of several hosts; `make chaos` runs the long one."""

from collections.abc import Callable

import pytest

from mustit_pipeline_tests.faults.celery_scenarios import CELERY_SCENARIOS
from mustit_pipeline_tests.faults.scenarios import QUICK, Numbers, Size
from mustit_pipeline_tests.faults.world import World, fresh_world


@pytest.mark.parametrize("scenario", CELERY_SCENARIOS, ids=[scenario.__name__ for scenario in CELERY_SCENARIOS])
def test_every_promise_holds_through(scenario: Callable[[World, Size], Numbers]) -> None:
    with fresh_world() as world:
        assert scenario(world, QUICK)
