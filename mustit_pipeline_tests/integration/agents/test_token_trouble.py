"""The token page throttles or is down: only an agent that is at fault is charged."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web
from sqlalchemy import text

from mustit_pipeline.agents.pool import Booking, Outcome, Wait, WaitReason
from mustit_pipeline.agents.session_cache import SessionCache
from mustit_pipeline.agents.sql import agent_bookings
from mustit_pipeline.domain.states import AgentStatus
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.marketplace.client import MarketplaceClient
from mustit_pipeline.marketplace.session import Session
from mustit_pipeline_tests.integration.agents.servers import Marketplace, RedisServer, empty_pool, settings_of
from mustit_pipeline_tests.integration.agents.visits import (
    block,
    booking_of,
    no_throttling,
    opened,
    rows,
    run,
    shared,
    stored_session,
    until,
    wait_of,
)


class SlowMarketplace(Marketplace):
    async def _token(self, request: web.Request) -> web.Response:
        await asyncio.sleep(1.0)
        return await super()._token(request)


def throttled(seconds: str) -> web.Response:
    return web.Response(status=429, headers={"Retry-After": seconds})


def used(database: Database) -> int:
    with database.reading() as connection:
        return agent_bookings.in_window(connection, 3600.0)[0]


def test_a_429_on_a_renewal_suspends_the_agent_for_as_long_as_is_asked(database: Database, tmp_path: Path) -> None:
    """No task waits for a renewal, so its 429 was lost and the page asked again half a second later."""
    empty_pool(database, 1)
    market = Marketplace(token_seconds=2)
    market.on_token = lambda _: throttled("7200") if len(market.tokens["agent-000"]) > 1 else None

    async def scenario() -> None:
        async with opened(tmp_path, database, marketplace=market, breaker_min_available=0) as (pool, _):
            while rows(database)["agent-000"].status is AgentStatus.AVAILABLE:
                answer = await pool.acquire()
                if isinstance(answer, Booking):
                    await pool.settle(answer, Outcome.SUCCESS)
                await asyncio.sleep(0.05)
            row = rows(database)["agent-000"]
            assert (row.status, row.token_expires_at) == (AgentStatus.SUSPENDED, None)
            assert row.suspended_until is not None
            assert row.suspended_until - datetime.now(UTC) > timedelta(minutes=119)
            assert len(market.tokens["agent-000"]) == 2

    run(scenario)


@pytest.mark.parametrize("counter", ["redis", "postgres"])
def test_a_throttled_token_page_is_a_storm_and_uses_up_no_request(
    database: Database, tmp_path: Path, redis_server: RedisServer, counter: str
) -> None:
    async def scenario() -> None:
        async with opened(
            tmp_path,
            database,
            redis_server.url if counter == "redis" else None,
            marketplace=Marketplace(on_token=lambda _: throttled("3")),
            breaker_min_available=0,
        ) as (pool, _):
            while shared(database).paused_until is None:
                await asyncio.gather(*(pool.acquire() for _ in range(6)))
                await asyncio.sleep(0.1)
            assert {(row.status, row.health) for row in rows(database).values()} == {(AgentStatus.AVAILABLE, 100)}
            assert 2.0 < (await wait_of(pool, WaitReason.HOST_PAUSED)).seconds <= 3.0
            assert shared(database).pause_level == 0
        assert used(database) == 0

    run(scenario)


def test_an_agent_whose_token_call_was_throttled_has_all_its_requests_left(database: Database, tmp_path: Path) -> None:
    empty_pool(database, 1)
    market = Marketplace()
    market.on_token = lambda _: throttled("0") if len(market.tokens["agent-000"]) == 1 else None

    async def scenario() -> None:
        async with opened(
            tmp_path,
            database,
            marketplace=market,
            breaker_min_available=0,
            suspend_seconds=0.3,
            requests_per_hour=1,
        ) as (pool, _):
            await pool.settle(await booking_of(pool), Outcome.SUCCESS)
            assert len(market.tokens["agent-000"]) == 2

    run(scenario)


def test_a_stored_token_close_to_its_end_is_replaced_by_the_worker_that_finds_it(
    database: Database, tmp_path: Path
) -> None:
    """A session dropped five seconds before its end was read back from the table and used until the last half."""
    known = rows(database)["agent-000"]
    ending = stored_session(database, tmp_path, "agent-000", timedelta(seconds=3))

    async def scenario() -> None:
        async with Marketplace() as server:
            settings = settings_of(home=tmp_path, base_url=server.url)
            async with MarketplaceClient(settings) as client:
                desk = SessionCache(settings, database, client, no_throttling)
                found = await desk.obtain(known.agent_id, known.user_agent)
                assert isinstance(found, Session)
                assert (found.token == ending.token, len(server.tokens["agent-000"])) == (False, 1)

    run(scenario)


# A page without a cookie is as little a token as an error.
@pytest.mark.parametrize("status", [503, 403, 200])
def test_an_outage_of_the_token_page_blocks_no_agent_and_ends_by_itself(
    database: Database, tmp_path: Path, status: int
) -> None:
    """Minutes of 503 on the token page once blocked the whole pool, each agent to be unblocked by hand."""
    # Slow, so that all six have asked before the first of them fails.
    market = SlowMarketplace(on_token=lambda _: web.Response(status=status))

    async def scenario() -> None:
        async with opened(tmp_path, database, marketplace=market) as (pool, _):
            # More than two for each of the six.
            while sum(map(len, market.tokens.values())) <= 12:
                answers = await asyncio.gather(*(pool.acquire() for _ in range(6)))
                await asyncio.sleep(min(answer.seconds for answer in answers if isinstance(answer, Wait)))
            assert {(row.status, row.issue_failures) for row in rows(database).values()} == {(AgentStatus.AVAILABLE, 0)}
            market.on_token = lambda _: None
            await booking_of(pool)

    run(scenario)


def test_agents_that_are_asked_one_after_the_other_see_that_it_is_the_host(database: Database, tmp_path: Path) -> None:
    """The healthiest agent is chosen again and again: it must not fail three times before another is asked."""
    with database.transaction() as connection:
        connection.execute(text("UPDATE user_agents SET health = 80 WHERE user_agent <> 'agent-000'"))
    market = Marketplace(on_token=lambda _: web.Response(status=503))

    async def scenario() -> None:
        async with opened(tmp_path, database, marketplace=market) as (pool, _):
            while len(market.tokens) < 5:
                waiting = await pool.acquire()
                assert isinstance(waiting, Wait)
                await asyncio.sleep(waiting.seconds)
            assert {(row.status, row.issue_failures) for row in rows(database).values()} == {(AgentStatus.AVAILABLE, 0)}

    run(scenario)


def test_a_trial_that_never_began_leaves_room_for_another(database: Database, tmp_path: Path) -> None:
    # Before the pool's first look: it knows that the breaker is open when it is asked.
    block(database, *(f"agent-{number:03}" for number in range(1, 6)))

    async def scenario() -> None:
        async with opened(tmp_path, database, marketplace=SlowMarketplace(), breaker_cooldown_seconds=0.3) as (pool, _):
            trial = asyncio.create_task(pool.acquire())
            while shared(database).trial_owner is None:
                if trial.done():
                    assert isinstance(trial.result(), Wait)
                    trial = asyncio.create_task(pool.acquire())
                await asyncio.sleep(0.05)
            trial.cancel()
            await until(lambda: shared(database).trial_owner is None, seconds=3.0)

    run(scenario)
