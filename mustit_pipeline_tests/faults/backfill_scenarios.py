"""A backfill of everybody at once, through a real daemon."""

from collections.abc import Callable

import httpx

from mustit_pipeline_tests.faults.celery_hosts import UNFINISHED, run_on_host
from mustit_pipeline_tests.faults.celery_scenarios import READY, wait_for_hosts
from mustit_pipeline_tests.faults.many_sellers_scenarios import Crowd, expect_calm, many_sellers
from mustit_pipeline_tests.faults.many_sellers_watch import BACKFILLED, watching
from mustit_pipeline_tests.faults.scenarios import LONG, Numbers, Size
from mustit_pipeline_tests.faults.world import World

BACKFILLS_AT_ONCE = 3
WAITING = f"SELECT count(*) FROM runs WHERE {BACKFILLED} AND status = 'QUEUED'"
DONE = f"SELECT count(*) FROM runs WHERE {BACKFILLED} AND status = 'SUCCESS'"
BY_SCHEDULE = """
    SELECT count(*) FROM crawling_schedule_executions WHERE triggered_by = 'schedule' AND status = 'COMPLETED'
"""
FIND = "{ partitionBackfillsOrError(limit: 1) { ... on PartitionBackfills { results { id status } } } }"
CANCEL = 'mutation { cancelPartitionBackfill(backfillId: "%s") { __typename } }'


def thousand_sellers_backfilled(world: World, size: Size) -> Numbers:
    """All are backfilled at once, three at a time; crawls that fall due pass them by, and the rest can be cancelled."""
    registered, due, done, at_once = (1000, 12, 60, 6) if size == LONG else (60, 2, 4, 2)
    with many_sellers(world, registered, 0, "celery", crawls_at_once=at_once) as crowd:
        for seller_id in crowd.registered:
            world.market.add_seller(seller_id, 1)
        assert crowd.control is not None
        control = crowd.control
        wait_for_hosts(lambda: READY in control.said, "the UI answers")
        with watching(crowd.runs, crowd.settings) as watch:
            run_on_host(world, crowd.settings, "operator", "mustit", "backfill", "--all")
            wait_for_hosts(lambda: crowd.runs.number(DONE), "the backfill has begun")
            # A backfill comes to them last.
            crowd.make_due(crowd.registered[-due:])
            wait_for_hosts(lambda: world.number(BY_SCHEDULE) == due, "those that are due are crawled")
            waiting = crowd.runs.number(WAITING)
            wait_for_hosts(lambda: crowd.runs.number(DONE) >= done, "the backfill goes on")
            wait_for_hosts(lambda: _cancelled(crowd), "the backfill is cancelled")
            wait_for_hosts(
                lambda: crowd.runs.number(f"SELECT count(*) FROM runs WHERE {UNFINISHED}") == 0, "no run is left"
            )
    if not waiting:
        raise AssertionError("crawls that were due waited for the whole backfill")
    if not 0 < watch.backfilling <= BACKFILLS_AT_ONCE:
        raise AssertionError(f"{watch.backfilling} sellers were backfilled at once")
    expect_calm(watch, at_once)
    return {
        "registered": registered,
        "due": due,
        "waited while they were crawled": waiting,
        "backfilled": crowd.runs.number(DONE),
        "most at once": watch.backfilling,
        "slowest answer ms": round(watch.slowest * 1000),
        "longest silence s": round(watch.silence),
    }


def _cancelled(crowd: Crowd) -> bool:
    """What the UI's button does, and again if need be.

    While Dagster's daemon requests the runs, it stores the state that it read before, and so may undo a cancel.
    """
    [found] = _ask(crowd, FIND)["partitionBackfillsOrError"]["results"]
    if found["status"] == "REQUESTED":
        answer = _ask(crowd, CANCEL % found["id"])["cancelPartitionBackfill"]["__typename"]
        if answer != "CancelBackfillSuccess":
            raise AssertionError(f"the backfill cannot be cancelled: {answer}")
    return found["status"] == "CANCELED"


def _ask(crowd: Crowd, query: str) -> dict[str, dict[str, list[dict[str, str]]]]:
    url = f"http://127.0.0.1:{crowd.settings.dagster_port}/graphql"
    return httpx.post(url, json={"query": query}, timeout=60, trust_env=False).json()["data"]


BACKFILL_SCENARIOS: tuple[Callable[[World, Size], Numbers], ...] = (thousand_sellers_backfilled,)
