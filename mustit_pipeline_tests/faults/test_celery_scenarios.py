"""The short version of every fault scenario of several hosts; `make chaos` runs the long one."""

from collections.abc import Callable

import pytest

from mustit_pipeline_tests.faults.celery_scenarios import run_worker_killed_on_its_host
from mustit_pipeline_tests.faults.many_sellers_scenarios import many_sellers_in_warm_workers
from mustit_pipeline_tests.faults.scenarios import QUICK, Numbers, Size
from mustit_pipeline_tests.faults.world import World, fresh_world

# Runs in processes of their own are what `mustit up` is tested with; killing everything takes minutes.
SHORT = (run_worker_killed_on_its_host, many_sellers_in_warm_workers)


@pytest.mark.parametrize("scenario", SHORT, ids=[scenario.__name__ for scenario in SHORT])
def test_every_promise_holds_through(scenario: Callable[[World, Size], Numbers]) -> None:
    with fresh_world() as world:
        assert scenario(world, QUICK)
