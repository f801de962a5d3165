"""The pool as a crawl sees it, against a marketplace over HTTP."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from mustit_pipeline.agents import roster
from mustit_pipeline.agents.pool import AgentPool, Booking, Outcome, Wait
from mustit_pipeline.agents.tokens import NoToken, TokenDesk
from mustit_pipeline.domain.states import AgentStatus
from mustit_pipeline.marketplace.client import MarketplaceClient
from mustit_pipeline.marketplace.session import Session
from mustit_pipeline.settings import Settings
from mustit_pipeline.store import agent_pool, agents
from mustit_pipeline.store.agents import AgentRow
from mustit_pipeline.store.database import Database
from mustit_pipeline_tests.integration.agents.servers import Marketplace, RedisServer, empty_pool

AVAILABLE, SUSPENDED, BLOCKED = AgentStatus


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


@asynccontextmanager
async def opened(
    home: Path, database: Database, redis_url: str | None = None, marketplace: Marketplace | None = None, **changes: Any
) -> AsyncIterator[tuple[AgentPool, Marketplace]]:
    async with marketplace or Marketplace() as server:
        settings = Settings(**{"home": home, "base_url": server.url, "min_request_gap_seconds": 0, **changes})
        async with (
            MarketplaceClient(settings) as client,
            AgentPool(settings, database, client, redis_url=redis_url) as pool,
        ):
            yield pool, server


async def booking_of(pool: AgentPool) -> Booking:
    """The next booking, waiting as long as the pool says."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        answer = await pool.acquire()
        if isinstance(answer, Booking):
            return answer
        await asyncio.sleep(min(answer.seconds, 1.0))
    raise AssertionError("no booking")


async def wait_of(pool: AgentPool, reason: str) -> Wait:
    answer = await pool.acquire()
    assert isinstance(answer, Wait), answer
    assert answer.reason == reason
    return answer


async def refused(pool: AgentPool) -> Wait:
    """The first refusal of the breaker."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        answer = await pool.acquire()
        if isinstance(answer, Wait) and answer.reason == "breaker":
            return answer
        if isinstance(answer, Booking):
            await pool.settle(answer, Outcome.NOT_SENT)
        await asyncio.sleep(0.02)
    raise AssertionError("the breaker never opened")


def rows(database: Database) -> dict[str, AgentRow]:
    with database.reading() as connection:
        return {row.user_agent: row for row in agents.read_agents(connection)}


def shared(database: Database) -> agent_pool.PoolRow:
    with database.reading() as connection:
        return agent_pool.read_pool(connection)


async def until(holds: Callable[[], bool], seconds: float = 5.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it never came true"
        await asyncio.sleep(0.02)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 25))  # pyright: ignore[reportArgumentType]


def test_a_token_is_issued_once_and_used_by_every_process(
    database: Database, home: Path, redis_server: RedisServer
) -> None:
    empty_pool(database, 1)

    async def scenario() -> None:
        async with opened(home, database, redis_server.url) as (pool, server):
            first = await booking_of(pool)
            await pool.settle(first, Outcome.SUCCESS)
            second = await booking_of(pool)
            await pool.settle(second, Outcome.SUCCESS)
            assert first.session == second.session
            settings = Settings(home=home, base_url=server.url, min_request_gap_seconds=0)
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
    database: Database, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario() -> None:
        async with opened(home, database) as (pool, _):
            booking = await booking_of(pool)
            assert "secret" not in repr(booking)
            assert booking.session.headers("x")["Authorization"].startswith("Bearer secret-")
            with database.reading() as connection:
                stored = agents.read_session(connection, booking.agent_id)
            assert stored is not None
            assert b"secret" not in stored.sealed
            await pool.throttled(booking, 10.0)

    run(scenario)
    shown = capsys.readouterr()
    assert "throttles" in shown.out + shown.err
    assert "secret" not in shown.out + shown.err


def test_a_token_is_renewed_before_it_ends(database: Database, home: Path) -> None:
    empty_pool(database, 1)

    async def scenario() -> None:
        async with opened(home, database, marketplace=Marketplace(token_seconds=2)) as (pool, server):
            end = time.monotonic() + 3.0
            while time.monotonic() < end:
                booking = await booking_of(pool)
                assert booking.session.expires_at > datetime.now(UTC)
                await pool.settle(booking, Outcome.SUCCESS)
                await asyncio.sleep(0.02)
            issued = server.tokens["agent-000"]
            assert len(issued) >= 2
            assert all(1.0 < after - before < 2.0 for before, after in pairwise(issued))

    run(scenario)


def test_one_issue_at_a_time_for_an_agent(database: Database, home: Path) -> None:
    async def scenario() -> None:
        async with Marketplace() as server:
            settings = Settings(home=home, base_url=server.url)
            async with MarketplaceClient(settings) as client:
                desks = [TokenDesk(settings, database, client) for _ in range(4)]
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
    database: Database, home: Path, answer: web.Response
) -> None:
    empty_pool(database, 2)

    def refuse(request: web.Request) -> web.Response | None:
        return web.Response(status=answer.status) if request.headers["User-Agent"] == "agent-000" else None

    async def scenario() -> None:
        async with opened(home, database, marketplace=Marketplace(on_token=refuse)) as (pool, server):
            good = await booking_of(pool)
            assert good.user_agent == "agent-001"
            deadline = time.monotonic() + 8
            while rows(database)["agent-000"].status is not BLOCKED:
                assert time.monotonic() < deadline
                waiting = await pool.acquire()
                assert isinstance(waiting, Wait)
                await asyncio.sleep(min(waiting.seconds, 0.5))
            assert len(server.tokens["agent-000"]) == 3
            await pool.settle(good, Outcome.SUCCESS)
            assert (await booking_of(pool)).user_agent == "agent-001"

    run(scenario)


def test_an_outage_of_the_marketplace_blocks_no_agent(database: Database, home: Path) -> None:
    async def scenario() -> None:
        async with Marketplace() as gone:
            url = gone.url
        async with opened(home, database, base_url=url) as (pool, _):
            for _ in range(6):
                waiting = await pool.acquire()
                assert isinstance(waiting, Wait)
                assert waiting.reason == "tokens"
                await asyncio.sleep(min(waiting.seconds, 0.4))
        assert {(row.status, row.issue_failures) for row in rows(database).values()} == {(AVAILABLE, 0)}

    run(scenario)


def test_a_refused_session_is_dropped_and_the_next_booking_has_a_new_one(database: Database, home: Path) -> None:
    empty_pool(database, 1)

    async def scenario() -> None:
        async with opened(home, database) as (pool, _):
            first = await booking_of(pool)
            await pool.settle(first, Outcome.UNAUTHORIZED)
            second = await booking_of(pool)
            assert second.session.token != first.session.token

    run(scenario)


def test_health_follows_the_answers_and_too_little_of_it_suspends(database: Database, home: Path) -> None:
    empty_pool(database, 1)

    async def scenario() -> None:
        async with opened(home, database, breaker_min_available=0) as (pool, _):
            for outcome, health in (
                (Outcome.SERVER_ERROR, 90),
                (Outcome.FAILED, 85),
                (Outcome.UNAUTHORIZED, 80),
                (Outcome.NOT_SENT, 80),
            ):
                await pool.settle(await booking_of(pool), outcome)
                assert rows(database)["agent-000"].health == health
            await asyncio.sleep(0.6)
            await pool.settle(await booking_of(pool), Outcome.SUCCESS)
            await until(lambda: rows(database)["agent-000"].health == 85)
            for _ in range(5):
                await pool.settle(await booking_of(pool), Outcome.SERVER_ERROR)
            row = rows(database)["agent-000"]
            assert (row.health, row.status) == (35, AVAILABLE)
            await pool.settle(await booking_of(pool), Outcome.SERVER_ERROR)
            row = rows(database)["agent-000"]
            assert (row.health, row.status) == (25, SUSPENDED)
            assert row.suspended_until is not None
            assert row.suspended_until - datetime.now(UTC) > timedelta(minutes=59)

    run(scenario)


@pytest.mark.parametrize(
    ("retry_after", "expected"),
    [
        (None, 3600),
        (1.0, 3600),
        (7200.0, 7200),
        (1e12, 86400),
        (float("nan"), 3600),
        (-5.0, 3600),
        (float("inf"), 86400),
    ],
)
def test_a_throttled_agent_rests_for_what_is_asked_with_a_floor_and_a_cap(
    database: Database, home: Path, retry_after: float | None, expected: float
) -> None:
    empty_pool(database, 2)

    async def scenario() -> None:
        async with opened(home, database) as (pool, _):
            booking = await booking_of(pool)
            await pool.throttled(booking, retry_after)
            row = rows(database)[booking.user_agent]
            assert (row.status, row.health, row.token_expires_at) == (SUSPENDED, 80, None)
            assert row.suspended_until is not None
            rest = (row.suspended_until - datetime.now(UTC)).total_seconds()
            assert rest == pytest.approx(expected, abs=20)
            assert (await booking_of(pool)).user_agent != booking.user_agent

    run(scenario)


async def bookings(pool: AgentPool, number: int) -> Sequence[Booking]:
    return [await booking_of(pool) for _ in range(number)]


def test_a_storm_pauses_the_host_and_blames_no_agent(database: Database, home: Path, redis_server: RedisServer) -> None:
    async def scenario() -> None:
        async with opened(home, database, redis_server.url) as (pool, _):
            flying = await bookings(pool, 6)
            for booking in flying[:4]:
                await pool.throttled(booking, None)
            assert sum(row.status is SUSPENDED for row in rows(database).values()) == 4
            await pool.throttled(flying[4], None)
            assert {(row.status, row.health) for row in rows(database).values()} == {(AVAILABLE, 100)}
            paused = await wait_of(pool, "host paused")
            assert 1.0 < paused.seconds <= 2.0
            # The sixth was on its way before the pause: the same event, which only its Retry-After can lengthen.
            await pool.throttled(flying[5], 4.0)
            assert shared(database).pause_level == 0
            assert 3.0 < (await wait_of(pool, "host paused")).seconds <= 4.0
            assert rows(database)[flying[5].user_agent].status is AVAILABLE

    run(scenario)


def test_concurrent_429s_are_one_event(database: Database, home: Path) -> None:
    empty_pool(database, 12)

    async def scenario() -> None:
        async with opened(home, database) as (pool, _):
            flying = await bookings(pool, 12)
            await asyncio.gather(*(pool.throttled(booking, None) for booking in flying))
            assert shared(database).pause_level == 0
            assert {row.status for row in rows(database).values()} == {AVAILABLE}
            assert 1.0 < (await wait_of(pool, "host paused")).seconds <= 2.0

    run(scenario)


def test_five_429s_among_many_good_answers_are_no_storm(database: Database, home: Path) -> None:
    async def scenario() -> None:
        async with opened(home, database, breaker_min_available=0) as (pool, _):
            for _ in range(12):
                await pool.settle(await booking_of(pool), Outcome.SUCCESS)
            for booking in await bookings(pool, 5):
                await pool.throttled(booking, None)
            assert sum(row.status is SUSPENDED for row in rows(database).values()) == 5
            assert shared(database).paused_until is None

    run(scenario)


def test_suspended_agents_come_back_with_health_70_and_a_new_token(database: Database, home: Path) -> None:
    empty_pool(database, 2)

    async def scenario() -> None:
        async with opened(home, database, suspend_seconds=0.3) as (pool, server):
            booking = await booking_of(pool)
            await pool.throttled(booking, None)
            await until(lambda: rows(database)[booking.user_agent].status is AVAILABLE)
            row = rows(database)[booking.user_agent]
            assert (row.health, row.token_expires_at, row.suspended_until) == (70, None, None)
            await bookings(pool, 2)
            assert len(server.tokens[booking.user_agent]) == 2

    run(scenario)


def block(database: Database, *names: str) -> None:
    known = rows(database)
    with database.transaction() as connection:
        for name in names:
            roster.block(connection, known[name].agent_id)


def test_too_few_agents_open_the_breaker_and_one_good_trial_closes_it(database: Database, home: Path) -> None:
    async def scenario() -> None:
        async with opened(home, database, breaker_cooldown_seconds=1.0) as (pool, _):
            block(database, *(f"agent-{number:03}" for number in range(1, 6)))
            refusal = await refused(pool)
            assert 0.5 < refusal.seconds <= 1.0
            await asyncio.sleep(refusal.seconds + 0.05)
            trial = await pool.acquire()
            assert isinstance(trial, Booking)
            await wait_of(pool, "breaker")
            await pool.settle(trial, Outcome.SUCCESS)
            row = shared(database)
            assert row.breaker_open_until is None
            # Still one of six: not judged again before the cool-down has passed.
            judged_at = time.monotonic() + 1.0
            while time.monotonic() < judged_at - 0.3:
                await pool.settle(await booking_of(pool), Outcome.SUCCESS)
                await asyncio.sleep(0.05)
            assert shared(database).breaker_open_until is None
            await until(lambda: shared(database).breaker_open_until is not None)

    run(scenario)


@pytest.mark.parametrize("throttled", [True, False])
def test_a_bad_trial_opens_the_breaker_again(database: Database, home: Path, throttled: bool) -> None:
    async def scenario() -> None:
        async with opened(home, database, breaker_cooldown_seconds=0.8) as (pool, _):
            block(database, *(f"agent-{number:03}" for number in range(1, 6)))
            await asyncio.sleep((await refused(pool)).seconds + 0.05)
            trial = await booking_of(pool)
            if throttled:
                await pool.throttled(trial, None)
            else:
                await pool.settle(trial, Outcome.SERVER_ERROR)
            assert 0.3 < (await wait_of(pool, "breaker")).seconds <= 0.8

    run(scenario)


def test_a_trial_that_decides_nothing_leaves_room_for_another(database: Database, home: Path) -> None:
    async def scenario() -> None:
        async with opened(home, database, breaker_cooldown_seconds=0.3) as (pool, _):
            block(database, *(f"agent-{number:03}" for number in range(1, 6)))
            await asyncio.sleep((await refused(pool)).seconds + 0.05)
            await pool.settle(await booking_of(pool), Outcome.UNAUTHORIZED)
            again = await pool.acquire()
            assert isinstance(again, Booking)
            await pool.settle(again, Outcome.SUCCESS)
            assert shared(database).breaker_open_until is None

    run(scenario)


def test_exactly_a_fifth_of_the_agents_is_enough(database: Database, home: Path) -> None:
    empty_pool(database, 35)

    async def scenario() -> None:
        async with opened(home, database) as (pool, _):
            block(database, *(f"agent-{number:03}" for number in range(28)))
            await asyncio.sleep(1.2)
            assert shared(database).breaker_open_until is None
            block(database, "agent-028")
            await refused(pool)

    run(scenario)


def test_the_limit_says_exactly_when_the_next_agent_is_free(
    database: Database, home: Path, redis_server: RedisServer
) -> None:
    empty_pool(database, 1)

    async def scenario() -> None:
        async with opened(
            home, database, redis_server.url, requests_per_hour=2, window_seconds=1.5, min_request_gap_seconds=0.1
        ) as (pool, _):
            await pool.settle(await booking_of(pool), Outcome.SUCCESS)
            answered = time.monotonic()
            await pool.settle(await booking_of(pool), Outcome.SUCCESS)
            waiting = await wait_of(pool, "limit")
            await asyncio.sleep(waiting.seconds)
            booking = await pool.acquire()
            assert isinstance(booking, Booking)
            assert time.monotonic() - answered == pytest.approx(1.5, abs=0.3)

    run(scenario)


def test_no_agent_at_all_is_said_so(database: Database, home: Path) -> None:
    empty_pool(database, 0)

    async def scenario() -> None:
        async with opened(home, database) as (pool, _):
            await wait_of(pool, "no agents")

    run(scenario)


def test_a_429_on_the_token_call_counts_like_any_other(database: Database, home: Path) -> None:
    empty_pool(database, 1)

    def throttle(_: web.Request) -> web.Response:
        return web.Response(status=429, headers={"Retry-After": "7200"})

    async def scenario() -> None:
        async with opened(home, database, marketplace=Marketplace(on_token=throttle), breaker_min_available=0) as (
            pool,
            _,
        ):
            assert isinstance(await pool.acquire(), Wait)
            row = rows(database)["agent-000"]
            assert (row.status, row.issue_failures) == (SUSPENDED, 0)
            assert row.suspended_until is not None
            assert row.suspended_until - datetime.now(UTC) > timedelta(minutes=119)

    run(scenario)


def test_a_desk_without_a_token_says_how_long(database: Database, home: Path) -> None:
    async def scenario() -> None:
        async with Marketplace(on_token=lambda _: web.Response(status=503)) as server:
            settings = Settings(home=home, base_url=server.url)
            async with MarketplaceClient(settings) as client:
                desk = TokenDesk(settings, database, client)
                known = list(rows(database).values())
                first = await desk.obtain(known[0].agent_id, known[0].user_agent)
                second = await desk.obtain(known[1].agent_id, known[1].user_agent)
                assert isinstance(first, NoToken)
                assert isinstance(second, NoToken)
                assert 0 < second.seconds <= first.seconds
                assert sum(len(calls) for calls in server.tokens.values()) == 1

    run(scenario)
