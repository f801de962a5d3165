"""Agents that are booked before there is a place for their request: few, and each is sent or given back."""

import asyncio

import pytest

from mustit_pipeline.agents.pool import AgentPool, Booking, Outcome
from mustit_pipeline.crawling.crawl import Crawl
from mustit_pipeline.crawling.planning import PRODUCT_TYPES
from mustit_pipeline.crawling.worker import Worker
from mustit_pipeline.foundation import event_loop
from mustit_pipeline.marketplace.client import MarketplaceClient
from mustit_pipeline_tests.integration.crawling.checks import check_outcomes, number
from mustit_pipeline_tests.integration.crawling.child import wait_until
from mustit_pipeline_tests.integration.crawling.sites import HELD, HURT, Site

PLACES = 3
# Enough for an agent that was being booked to come and be given back.
GRACE_SECONDS = 1.0
# A booking that is given back is removed.
BOOKINGS = "SELECT count(*) FROM agent_bookings"
WITHOUT_ANSWER = "SELECT count(*) FROM agent_bookings WHERE answered_at IS NULL"


def test_every_booking_of_a_crawl_is_sent_or_given_back_when_the_queue_runs_dry(site: Site) -> None:
    before = number(site.database, BOOKINGS)
    most: list[int] = []

    async def watch(worker: Worker) -> None:
        working = asyncio.create_task(worker.run())
        while not working.done():
            most.append(await asyncio.to_thread(number, site.database, WITHOUT_ANSWER))
        await working

    site.market.settings(latencyMs=20)
    site.run(watch, max_concurrent_requests=PLACES)

    assert max(most) > PLACES
    assert number(site.database, BOOKINGS) - before == site.called() == 80
    assert number(site.database, WITHOUT_ANSWER) == number(site.database, HELD) == number(site.database, HURT) == 0
    check_outcomes(site.database, site.work.stored.execution.id)


def give_sessions(site: Site, agents: int) -> None:
    """So many agents have a session from before: they are booked first, and at once."""
    settings = site.work.settings

    async def go() -> None:
        async with (
            MarketplaceClient(settings) as client,
            AgentPool(settings, site.database, client, redis_url=None) as pool,
        ):
            booked = [await pool.acquire() for _ in range(agents)]
            for booking in booked:
                assert isinstance(booking, Booking)
                await pool.settle(booking, Outcome.NOT_SENT)

    event_loop.run(go())


def test_no_more_agents_wait_for_a_place_than_there_are_places_however_long_they_wait(site: Site) -> None:
    """Those that had waited a second once counted no longer, and as many were booked again.

    A worker that stood still once kept every agent from all others, although it had five places.
    """
    give_sessions(site, 20)
    site.market.fault("slow", "api", seconds=600)
    booked: list[int] = []
    held: list[int] = []

    def handed_back() -> bool:
        """Whether tasks were held for as long as they may be without being sent."""
        booked.append(number(site.database, WITHOUT_ANSWER))
        held.append(number(site.database, HELD))
        return held[-1] < max(held)

    async def wait_long(worker: Worker) -> None:
        working = asyncio.create_task(worker.run())
        await asyncio.to_thread(wait_until, handed_back)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working

    site.run(wait_long, max_concurrent_requests=PLACES, grace_seconds=GRACE_SECONDS)

    assert max(booked) == 2 * PLACES
    assert number(site.database, WITHOUT_ANSWER) == site.asked() == PLACES


def test_a_cancelled_worker_sends_none_of_the_agents_that_wait_for_a_place(site: Site) -> None:
    site.market.fault("slow", "api", seconds=600)

    async def stop_while_some_wait(worker: Worker) -> None:
        working = asyncio.create_task(worker.run())
        await asyncio.to_thread(
            wait_until, lambda: number(site.database, WITHOUT_ANSWER) > PLACES and site.asked() == PLACES
        )
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working

    site.run(stop_while_some_wait, max_concurrent_requests=PLACES, grace_seconds=GRACE_SECONDS)

    # What was sent may still be counted by the marketplace: its agents stay booked.
    assert number(site.database, WITHOUT_ANSWER) == site.asked() == PLACES
    assert number(site.database, HELD) == 0
    assert number(site.database, HURT) == PLACES
    check_outcomes(site.database, site.work.stored.execution.id, ended=False)


@pytest.mark.parametrize("seconds", [0.3, 1.3])
def test_a_worker_whose_time_is_up_gives_back_the_agents_that_wait_for_a_place(site: Site, seconds: float) -> None:
    """In the middle of its start, and when some have waited for longer than an agent is expected to take."""
    site.market.fault("slow", "api", seconds=600)
    settings = site.settings(max_concurrent_requests=PLACES, grace_seconds=GRACE_SECONDS)

    Crawl(site.database, settings, site.work.stored).fetch_products(PRODUCT_TYPES, seconds)

    assert number(site.database, WITHOUT_ANSWER) == site.asked() <= PLACES
    assert number(site.database, HELD) == 0
    check_outcomes(site.database, site.work.stored.execution.id, ended=False)
