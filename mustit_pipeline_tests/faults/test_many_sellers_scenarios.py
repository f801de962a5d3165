"""The short version of many sellers due at once; `make chaos` runs the long one."""

from mustit_pipeline_tests.faults.many_sellers_scenarios import many_sellers_in_warm_workers
from mustit_pipeline_tests.faults.scenarios import QUICK
from mustit_pipeline_tests.faults.world import fresh_world


def test_more_sellers_than_lanes_are_due_and_all_are_crawled_in_their_order() -> None:
    with fresh_world() as world:
        assert many_sellers_in_warm_workers(world, QUICK)
