"""The pool as a crawl sees it: health, suspension, storms, limits."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from mustit_pipeline.agents.pool import Booking, Outcome
from mustit_pipeline.domain.states import AgentStatus
from mustit_pipeline.store.database import Database
from mustit_pipeline_tests.integration.agents.servers import RedisServer, empty_pool
from mustit_pipeline_tests.integration.agents.visits import (
    booking_of,
    bookings,
    opened,
    rows,
    run,
    shared,
    until,
    wait_of,
)


def test_health_follows_the_answers_and_too_little_of_it_suspends(database: Database, tmp_path: Path) -> None:
    empty_pool(database, 1)

    async def scenario() -> None:
        async with opened(tmp_path, database, breaker_min_available=0) as (pool, _):
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
            assert (row.health, row.status) == (35, AgentStatus.AVAILABLE)
            await pool.settle(await booking_of(pool), Outcome.SERVER_ERROR)
            row = rows(database)["agent-000"]
            assert (row.health, row.status) == (25, AgentStatus.SUSPENDED)
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
    database: Database, tmp_path: Path, retry_after: float | None, expected: float
) -> None:
    empty_pool(database, 2)

    async def scenario() -> None:
        async with opened(tmp_path, database) as (pool, _):
            booking = await booking_of(pool)
            await pool.throttled(booking, retry_after)
            row = rows(database)[booking.user_agent]
            assert (row.status, row.health, row.token_expires_at) == (AgentStatus.SUSPENDED, 80, None)
            assert row.suspended_until is not None
            rest = (row.suspended_until - datetime.now(UTC)).total_seconds()
            assert rest == pytest.approx(expected, abs=20)
            assert (await booking_of(pool)).user_agent != booking.user_agent

    run(scenario)


def test_a_storm_pauses_the_host_and_blames_no_agent(
    database: Database, tmp_path: Path, redis_server: RedisServer
) -> None:
    async def scenario() -> None:
        async with opened(tmp_path, database, redis_server.url) as (pool, _):
            flying = await bookings(pool, 6)
            for booking in flying[:4]:
                await pool.throttled(booking, None)
            assert sum(row.status is AgentStatus.SUSPENDED for row in rows(database).values()) == 4
            await pool.throttled(flying[4], None)
            assert {(row.status, row.health) for row in rows(database).values()} == {(AgentStatus.AVAILABLE, 100)}
            paused = await wait_of(pool, "host paused")
            assert 1.0 < paused.seconds <= 2.0
            # The sixth was on its way before the pause: the same event, which only its Retry-After can lengthen.
            await pool.throttled(flying[5], 4.0)
            assert shared(database).pause_level == 0
            assert 3.0 < (await wait_of(pool, "host paused")).seconds <= 4.0
            assert rows(database)[flying[5].user_agent].status is AgentStatus.AVAILABLE

    run(scenario)


def test_concurrent_429s_are_one_event(database: Database, tmp_path: Path) -> None:
    empty_pool(database, 12)

    async def scenario() -> None:
        async with opened(tmp_path, database) as (pool, _):
            flying = await bookings(pool, 12)
            await asyncio.gather(*(pool.throttled(booking, None) for booking in flying))
            assert shared(database).pause_level == 0
            assert {row.status for row in rows(database).values()} == {AgentStatus.AVAILABLE}
            assert 1.0 < (await wait_of(pool, "host paused")).seconds <= 2.0

    run(scenario)


def test_five_429s_among_many_good_answers_are_no_storm(database: Database, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path, database, breaker_min_available=0) as (pool, _):
            for _ in range(12):
                await pool.settle(await booking_of(pool), Outcome.SUCCESS)
            for booking in await bookings(pool, 5):
                await pool.throttled(booking, None)
            assert sum(row.status is AgentStatus.SUSPENDED for row in rows(database).values()) == 5
            assert shared(database).paused_until is None

    run(scenario)


def test_a_storm_is_seen_however_many_good_answers_came_just_before(database: Database, tmp_path: Path) -> None:
    empty_pool(database, 25)

    async def scenario() -> None:
        async with opened(tmp_path, database) as (pool, _):
            for _ in range(12):
                await pool.settle(await booking_of(pool), Outcome.SUCCESS)
            flying = await bookings(pool, 10)
            for booking in flying[:9]:
                await pool.throttled(booking, None)
            assert shared(database).paused_until is None
            await pool.throttled(flying[9], None)
            assert {row.status for row in rows(database).values()} == {AgentStatus.AVAILABLE}
            assert (await wait_of(pool, "host paused")).seconds <= 2.0

    run(scenario)


def test_a_storm_is_seen_however_slowly_its_answers_come_and_nobody_stays_suspended(
    database: Database, tmp_path: Path
) -> None:
    """Below an answer a second five agents never fell into the last seconds: the pool was burnt, agent by agent."""
    empty_pool(database, 20)

    async def scenario() -> None:
        async with opened(tmp_path, database, storm_window_seconds=0.05) as (pool, _):
            for _ in range(9):
                await pool.throttled(await booking_of(pool), None)
                await asyncio.sleep(0.1)
            assert sum(row.status is AgentStatus.SUSPENDED for row in rows(database).values()) == 9
            assert shared(database).paused_until is None
            await pool.throttled(await booking_of(pool), None)
            assert {(row.status, row.health) for row in rows(database).values()} == {(AgentStatus.AVAILABLE, 100)}
            await wait_of(pool, "host paused")

    run(scenario)


def test_slow_429s_with_good_answers_in_between_are_no_storm(database: Database, tmp_path: Path) -> None:
    empty_pool(database, 20)

    async def scenario() -> None:
        async with opened(tmp_path, database, storm_window_seconds=0.05) as (pool, _):
            for number in range(12):
                if number == 6:
                    await pool.settle(await booking_of(pool), Outcome.SUCCESS)
                await pool.throttled(await booking_of(pool), None)
                await asyncio.sleep(0.1)
            assert sum(row.status is AgentStatus.SUSPENDED for row in rows(database).values()) == 12
            assert shared(database).paused_until is None

    run(scenario)


def test_a_good_answer_long_before_a_429_still_ends_the_pause(database: Database, tmp_path: Path) -> None:
    """Only the last seconds were looked at: one 429 a while after a storm doubled the pause of everybody."""

    async def scenario() -> None:
        async with opened(tmp_path, database, storm_pause_seconds=0.2, storm_window_seconds=1.0) as (pool, _):
            for booking in await bookings(pool, 5):
                await pool.throttled(booking, None)
            await asyncio.sleep((await wait_of(pool, "host paused")).seconds + 0.05)
            await pool.settle(await booking_of(pool), Outcome.SUCCESS)
            await asyncio.sleep(1.1)
            late = await booking_of(pool)
            await pool.throttled(late, None)
            assert shared(database).pause_level == 0
            assert rows(database)[late.user_agent].status is AgentStatus.SUSPENDED

    run(scenario)


def test_a_429_right_after_a_pause_is_the_same_storm_until_a_good_answer_ends_it(
    database: Database, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with opened(tmp_path, database, storm_pause_seconds=0.2) as (pool, _):
            for booking in await bookings(pool, 5):
                await pool.throttled(booking, None)
            await asyncio.sleep((await wait_of(pool, "host paused")).seconds + 0.05)
            await pool.throttled(await booking_of(pool), None)
            assert shared(database).pause_level == 1
            assert {(row.status, row.health) for row in rows(database).values()} == {(AgentStatus.AVAILABLE, 100)}
            await asyncio.sleep((await wait_of(pool, "host paused")).seconds + 0.05)
            first, second = await bookings(pool, 2)
            await pool.settle(first, Outcome.SUCCESS)
            await pool.throttled(second, None)
            assert shared(database).pause_level == 1
            assert rows(database)[second.user_agent].status is AgentStatus.SUSPENDED

    run(scenario)


def test_what_a_storm_is_and_what_a_429_costs_are_settings(database: Database, tmp_path: Path) -> None:
    rules = {"storm_agents": 2, "storm_share": 1.0, "storm_pause_seconds": 30, "health_cost_throttled": 7}

    async def scenario() -> None:
        async with opened(tmp_path, database, breaker_min_available=0, **rules) as (pool, _):
            first, second = await bookings(pool, 2)
            await pool.throttled(first, None)
            assert rows(database)[first.user_agent].health == 93
            await pool.throttled(second, None)
            assert {(row.status, row.health) for row in rows(database).values()} == {(AgentStatus.AVAILABLE, 100)}
            assert 28.0 < (await wait_of(pool, "host paused")).seconds <= 30.0

    run(scenario)


def test_the_limit_says_exactly_when_the_next_agent_is_free(
    database: Database, tmp_path: Path, redis_server: RedisServer
) -> None:
    empty_pool(database, 1)

    async def scenario() -> None:
        async with opened(
            tmp_path, database, redis_server.url, requests_per_hour=2, window_seconds=3, min_request_gap_seconds=0.1
        ) as (pool, _):
            booking = await booking_of(pool)
            sent = time.monotonic()
            await pool.settle(booking, Outcome.SUCCESS)
            answered = time.monotonic()
            await pool.settle(await booking_of(pool), Outcome.SUCCESS)
            asked = time.monotonic()
            waiting = await wait_of(pool, "limit")
            # The window began somewhere between sent and answered, and Redis counts milliseconds.
            assert asked + waiting.seconds <= answered + 3.01
            await asyncio.sleep(waiting.seconds)
            assert isinstance(await pool.acquire(), Booking)
            assert time.monotonic() - sent >= 2.99

    run(scenario)


def test_no_agent_at_all_is_said_so(database: Database, tmp_path: Path) -> None:
    empty_pool(database, 0)

    async def scenario() -> None:
        async with opened(tmp_path, database) as (pool, _):
            await wait_of(pool, "no agents")

    run(scenario)
