"""What can be done to the hosts of a pipeline that runs on several of them."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from mustit_pipeline_tests.faults.celery_hosts import (
    DAEMON,
    RUN_WORKER,
    TASK_WORKER,
    UNFINISHED,
    UP,
    dagster_runs,
    host,
    shared_settings,
    terminate,
)
from mustit_pipeline_tests.faults.engine_scenarios import HELD, kill_redis
from mustit_pipeline_tests.faults.invariants import check_all, check_convergence
from mustit_pipeline_tests.faults.scenarios import LONG, SELLER, Numbers, Size
from mustit_pipeline_tests.faults.world import PATIENCE_SECONDS, World, wait_until
from mustit_pipeline_tests.integration.crawls import register

COMPLETED = "SELECT count(*) FROM crawling_schedule_executions WHERE status = 'COMPLETED' AND failed_tasks = 0"
# What `mustit up` says last.
READY = "Ctrl-C stops everything"
# So long may a run that lost its process keep its seller waiting.
STUCK_SECONDS = 120.0
# Hosts take seconds for what they do: looking all the time only slows them down.
wait_for_hosts = partial(wait_until, every=0.2, patience=15 * PATIENCE_SECONDS)


def run_worker_killed_on_its_host(world: World, size: Size) -> Numbers:
    """Two hosts do the runs of one broker; kill -9 of one delays its crawls and loses nothing."""
    sellers = [f"셀러 {number}" for number in range(60 if size == LONG else 10)]
    kills = 3 if size == LONG else 1
    products = 20 if size == LONG else 3
    settings = shared_settings(
        world,
        run_launcher="celery",
        crawls_at_once=6,
        runs_at_once=12,
        # Where a killed worker's only run is known to have started, nothing waits for Dagster's own time-outs.
        run_worker_slots=4 if size == LONG else 1,
        run_grace_seconds=60 if size == LONG else 2,
    )
    for seller_id in sellers:
        world.market.add_seller(seller_id, products)
    world.market.settings(latencyMs=100)
    register(world.database, *sellers)
    noticed: list[float] = []
    with dagster_runs(settings) as runs, ExitStack() as hosts:
        hosts.enter_context(host(world, settings, "control", *DAEMON))
        stays = hosts.enter_context(host(world, settings, "worker-stays", *RUN_WORKER))
        if size == LONG:
            hosts.enter_context(host(world, settings, "tasks", *TASK_WORKER))
        for number in range(kills):
            with host(world, settings, f"worker-{number}", *RUN_WORKER) as worker:
                wait_for_hosts(partial(runs.started_by, worker), "the worker has begun a run")
                worker.kill()
                killed = runs.started_by(worker)
            if not killed:
                raise AssertionError("the worker was killed with nothing in hand")
            began = time.monotonic()
            wait_for_hosts(partial(runs.all_ended, killed), "the killed runs are noticed")
            noticed.append(time.monotonic() - began)
        if size == LONG:
            kill_redis(world.settings)
        wait_for_hosts(lambda: world.number(COMPLETED) >= len(sellers), "every seller is crawled")
        wait_for_hosts(lambda: runs.number(f"SELECT count(*) FROM runs WHERE {UNFINISHED}") == 0, "no run is left over")
        if not stays.tasks_done:
            raise AssertionError("the second worker has done nothing")
    if max(noticed) > STUCK_SECONDS:
        raise AssertionError(f"a killed run was stuck for {max(noticed):.0f} s")
    effects = check_all(world, sellers[0], settings)
    for seller_id in sellers:
        check_convergence(world, seller_id)
    return {
        "hosts": 3,
        "sellers": len(sellers),
        "kills": kills,
        "noticed after s": round(max(noticed)),
        "effects": effects,
    }


def run_cancelled_from_the_ui(world: World, size: Size) -> Numbers:
    """Terminate in the UI stops a run on another host at once: it is CANCELED, and leaves no lease behind."""
    settings = shared_settings(world, run_launcher="celery", run_worker_slots=1, page_size=10)
    world.market.add_seller(SELLER, 60)
    world.market.settings(latencyMs=500)
    register(world.database, SELLER)
    cancelled = 3 if size == LONG else 1
    slowest = 0.0
    with dagster_runs(settings) as runs, ExitStack() as hosts:
        control = hosts.enter_context(host(world, settings, "control", *UP))
        worker = hosts.enter_context(host(world, settings, "worker", *RUN_WORKER))
        wait_for_hosts(lambda: READY in control.said, "the UI answers")
        for number in range(cancelled):
            wait_for_hosts(lambda: runs.started_by(worker) and world.number(HELD), "the worker fetches")
            [run_id] = runs.started_by(worker)
            began = time.monotonic()
            terminate(settings, run_id)
            wait_for_hosts(partial(runs.all_ended, [run_id]), "the run ends")
            slowest = max(slowest, time.monotonic() - began)
            if (found := runs.number("SELECT count(*) FROM runs WHERE status = 'CANCELED'")) != number + 1:
                raise AssertionError(f"{found} runs are CANCELED after {number + 1} terminations")
            if held := world.number(HELD):
                raise AssertionError(f"{held} tasks were left with the cancelled run")
        world.market.settings(latencyMs=0)
        wait_for_hosts(lambda: world.number(COMPLETED), "the next run goes on to the end")
    return {"cancelled": cancelled, "ended after s": round(slowest), "effects": check_all(world, SELLER, settings)}


CELERY_SCENARIOS: tuple[Callable[[World, Size], Numbers], ...] = (
    run_worker_killed_on_its_host,
    run_cancelled_from_the_ui,
)
