"""Tokens: issued when missing, renewed ahead, one at a time, never shown."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web

from mustit_pipeline.agents.pool import AgentPool, Booking, Outcome, Wait, WaitReason
from mustit_pipeline.agents.session_cache import NoToken, SessionCache
from mustit_pipeline.agents.sql import agents
from mustit_pipeline.domain.states import AgentStatus
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.marketplace.client import MarketplaceClient
from mustit_pipeline.marketplace.session import Session
from mustit_pipeline_tests.integration.agents.servers import Marketplace, RedisServer, empty_pool, settings_of
from mustit_pipeline_tests.integration.agents.visits import (
    booking_of,
    bookings,
    no_throttling,
    opened,
    product,
    rows,
    run,
    stored_session,
    until,
)


def test_a_token_is_issued_once_and_used_by_every_process(
    database: Database, tmp_path: Path, redis_server: RedisServer
) -> None:
    empty_pool(database, 1)

    async def scenario() -> None:
        async with opened(tmp_path, database, redis_server.url) as (pool, server):
            first = await booking_of(pool)
            await pool.settle(first, Outcome.SUCCESS)
            second = await booking_of(pool)
            await pool.settle(second, Outcome.SUCCESS)
            assert first.session == second.session
            settings = settings_of(home=tmp_path, base_url=server.url, min_request_gap_seconds=0)
            async with (
                MarketplaceClient(settings) as client,
                AgentPool(settings, database, client, redis_url=redis_server.url) as other,
            ):
                third = await booking_of(other)
                assert third.session == first.session
                await other.settle(third, Outcome.SUCCESS)
            assert len(server.tokens["agent-000"]) == 1

    run(scenario)


def test_neither_the_table_nor_a_booking_shows_a_token(
    database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario() -> None:
        async with opened(tmp_path, database) as (pool, _):
            booking = await booking_of(pool)
            assert "secret" not in repr(booking)
            assert booking.session.headers("x")["Authorization"].startswith("Bearer secret-")
            with database.reading() as connection:
                stored = agents.read_session(connection, booking.agent_id)
            assert stored is not None
            assert b"secret" not in stored.sealed
            await pool.record_429(booking, 10.0, url=product(1))

    run(scenario)
    shown = capsys.readouterr()
    assert "throttles" in shown.out + shown.err
    assert "secret" not in shown.out + shown.err


def test_a_token_is_renewed_before_it_ends_and_no_request_waits_for_that(database: Database, tmp_path: Path) -> None:
    empty_pool(database, 1)
    ending = stored_session(database, tmp_path, "agent-000", timedelta(seconds=200))

    async def scenario() -> None:
        async with opened(tmp_path, database, requests_per_hour=10_000) as (pool, server):
            with_the_old = 0
            while (booking := await booking_of(pool)).session == ending:
                with_the_old += 1
                await pool.settle(booking, Outcome.SUCCESS)
                await asyncio.sleep(0.02)
            # While the next one is sent for.
            assert with_the_old >= 1
            assert booking.session.expires_at > ending.expires_at > datetime.now(UTC)
            assert len(server.tokens["agent-000"]) == 1

    run(scenario)


def test_a_token_that_is_good_for_longer_is_not_renewed(database: Database, tmp_path: Path) -> None:
    empty_pool(database, 1)
    stored = stored_session(database, tmp_path, "agent-000", timedelta(seconds=400))

    async def scenario() -> None:
        async with opened(tmp_path, database) as (pool, server):
            for _ in range(5):
                booking = await booking_of(pool)
                assert booking.session == stored
                await pool.settle(booking, Outcome.SUCCESS)
                await asyncio.sleep(0.05)
            assert not server.tokens

    run(scenario)


def test_one_issue_at_a_time_for_an_agent(database: Database, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Marketplace() as server:
            settings = settings_of(home=tmp_path, base_url=server.url)
            async with MarketplaceClient(settings) as client:
                desks = [SessionCache(settings, database, client, no_throttling) for _ in range(4)]
                agent = rows(database)["agent-000"]
                answers = await asyncio.gather(*(desk.obtain(agent.agent_id, agent.user_agent) for desk in desks * 2))
                assert len(server.tokens["agent-000"]) == 1
                assert sum(isinstance(answer, Session) for answer in answers) >= 2
                late = await desks[3].obtain(agent.agent_id, agent.user_agent)
                assert isinstance(late, Session)
                assert len(server.tokens["agent-000"]) == 1

    run(scenario)


@pytest.mark.parametrize("answer", [web.Response(text="no cookie"), web.Response(status=500), web.Response(status=403)])
def test_three_failed_issues_in_a_row_block_an_agent_and_another_one_works(
    database: Database, tmp_path: Path, answer: web.Response
) -> None:
    empty_pool(database, 2)

    def refuse(request: web.Request) -> web.Response | None:
        return web.Response(status=answer.status) if request.headers["User-Agent"] == "agent-000" else None

    async def scenario() -> None:
        async with opened(tmp_path, database, marketplace=Marketplace(on_token=refuse)) as (pool, server):
            good = await booking_of(pool)
            assert good.user_agent == "agent-001"
            deadline = time.monotonic() + 8
            while rows(database)["agent-000"].status is not AgentStatus.BLOCKED:
                assert time.monotonic() < deadline
                waiting = await pool.acquire()
                assert isinstance(waiting, Wait)
                await asyncio.sleep(min(waiting.seconds, 0.5))
            assert len(server.tokens["agent-000"]) == 3
            await pool.settle(good, Outcome.SUCCESS)
            assert (await booking_of(pool)).user_agent == "agent-001"

    run(scenario)


def test_an_outage_of_the_marketplace_blocks_no_agent(database: Database, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Marketplace() as gone:
            url = gone.url
        async with opened(tmp_path, database, base_url=url) as (pool, _):
            for _ in range(6):
                waiting = await pool.acquire()
                assert isinstance(waiting, Wait)
                assert waiting.reason is WaitReason.NO_TOKEN
                await asyncio.sleep(min(waiting.seconds, 0.4))
        assert {(row.status, row.issue_failures) for row in rows(database).values()} == {(AgentStatus.AVAILABLE, 0)}

    run(scenario)


def test_a_refused_session_is_dropped_and_the_next_booking_has_a_new_one(database: Database, tmp_path: Path) -> None:
    empty_pool(database, 1)

    async def scenario() -> None:
        async with opened(tmp_path, database) as (pool, _):
            first = await booking_of(pool)
            await pool.settle(first, Outcome.UNAUTHORIZED)
            second = await booking_of(pool)
            assert second.session.token != first.session.token

    run(scenario)


def test_a_booking_whose_session_may_be_stale_gets_a_new_one(database: Database, tmp_path: Path) -> None:
    empty_pool(database, 1)

    async def scenario() -> None:
        async with opened(tmp_path, database) as (pool, server):
            first = await booking_of(pool)
            second = await pool.renew(first)
            assert isinstance(second, Booking)
            assert second.booking_id == first.booking_id
            assert second.session.token != first.session.token
            await pool.settle(second, Outcome.UNAUTHORIZED)
            third = await booking_of(pool)
            assert third.session.token not in (first.session.token, second.session.token)
            assert len(server.tokens["agent-000"]) == 3

    run(scenario)


def test_a_booking_that_gets_no_new_session_is_given_back_and_its_agent_keeps_the_old_one(
    database: Database, tmp_path: Path
) -> None:
    empty_pool(database, 1)
    market = Marketplace()

    async def scenario() -> None:
        async with opened(tmp_path, database, marketplace=market) as (pool, _):
            first = await booking_of(pool)
            market.on_token = lambda _: web.Response(status=503)
            waiting = await pool.renew(first)
            assert isinstance(waiting, Wait)
            assert (waiting.reason, waiting.seconds > 0) == (WaitReason.NO_TOKEN, True)
            again = await booking_of(pool)
            assert again.booking_id != first.booking_id
            assert again.session == first.session

    run(scenario)


def test_suspended_agents_come_back_with_health_70_and_a_new_token(database: Database, tmp_path: Path) -> None:
    empty_pool(database, 2)

    async def scenario() -> None:
        async with opened(tmp_path, database, suspend_seconds=0.3) as (pool, server):
            booking = await booking_of(pool)
            await pool.record_429(booking, None, url=product(1))
            await until(lambda: rows(database)[booking.user_agent].status is AgentStatus.AVAILABLE)
            row = rows(database)[booking.user_agent]
            assert (row.health, row.token_expires_at, row.suspended_until) == (70, None, None)
            await bookings(pool, 2)
            assert len(server.tokens[booking.user_agent]) == 2

    run(scenario)


def test_a_429_on_the_token_call_counts_like_any_other(database: Database, tmp_path: Path) -> None:
    empty_pool(database, 1)

    def throttle(_: web.Request) -> web.Response:
        return web.Response(status=429, headers={"Retry-After": "7200"})

    async def scenario() -> None:
        async with opened(tmp_path, database, marketplace=Marketplace(on_token=throttle), breaker_min_available=0) as (
            pool,
            _,
        ):
            assert isinstance(await pool.acquire(), Wait)
            row = rows(database)["agent-000"]
            assert (row.status, row.issue_failures) == (AgentStatus.SUSPENDED, 0)
            assert row.suspended_until is not None
            assert row.suspended_until - datetime.now(UTC) > timedelta(minutes=119)

    run(scenario)


def test_a_desk_without_a_token_says_how_long(database: Database, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Marketplace(on_token=lambda _: web.Response(status=503)) as server:
            settings = settings_of(home=tmp_path, base_url=server.url)
            async with MarketplaceClient(settings) as client:
                desk = SessionCache(settings, database, client, no_throttling)
                known = list(rows(database).values())
                first = await desk.obtain(known[0].agent_id, known[0].user_agent)
                second = await desk.obtain(known[1].agent_id, known[1].user_agent)
                assert isinstance(first, NoToken)
                assert isinstance(second, NoToken)
                assert 0 < second.seconds <= first.seconds
                assert sum(len(calls) for calls in server.tokens.values()) == 1

    run(scenario)
