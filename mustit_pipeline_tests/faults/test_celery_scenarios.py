"""The short version of a host that dies; `make chaos` runs the long one."""

from mustit_pipeline_tests.faults.celery_scenarios import run_worker_killed_on_its_host
from mustit_pipeline_tests.faults.scenarios import QUICK
from mustit_pipeline_tests.faults.world import fresh_world


def test_a_run_worker_that_is_killed_delays_its_crawls_and_loses_nothing() -> None:
    with fresh_world() as world:
        assert run_worker_killed_on_its_host(world, QUICK)
