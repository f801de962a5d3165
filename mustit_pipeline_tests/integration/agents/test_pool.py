"""The pool as a crawl sees it: health, suspension, storms, limits."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from mustit_pipeline.agents.pool import Booking, Outcome, WaitReason
from mustit_pipeline.domain.states import AgentStatus
from mustit_pipeline.foundation.database import Database
from mustit_pipeline_tests.integration.agents.servers import RedisServer, empty_pool
from mustit_pipeline_tests.integration.agents.visits import (
    booking_of,
    bookings,
    opened,
    product,
    refuse,
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
            await pool.record_429(booking, retry_after, url=product(1))
            row = rows(database)[booking.user_agent]
            assert (row.status, row.health, row.token_expires_at) == (AgentStatus.SUSPENDED, 80, None)
            assert row.suspended_until is not None
            rest = (row.suspended_until - datetime.now(UTC)).total_seconds()
            assert rest == pytest.approx(expected, abs=20)
            assert (await booking_of(pool)).user_agent != booking.user_agent

    run(scenario)


def resting(database: Database) -> int:
    return sum(row.status is AgentStatus.SUSPENDED for row in rows(database).values())


def test_a_storm_pauses_the_host_and_is_charged_to_no_agent(
    database: Database, tmp_path: Path, redis_server: RedisServer
) -> None:
    async def scenario() -> None:
        async with opened(tmp_path, database, redis_server.url) as (pool, _):
            in_flight = await bookings(pool, 6)
            await refuse(pool, in_flight[:5])
            assert {(row.status, row.health) for row in rows(database).values()} == {(AgentStatus.AVAILABLE, 100)}
            paused = await wait_of(pool, WaitReason.HOST_PAUSED)
            assert 1.0 < paused.seconds <= 2.0
            # The sixth was on its way before the pause: the same event, which only its Retry-After can lengthen.
            await pool.record_429(in_flight[5], 4.0, url=product(9))
            assert shared(database).pause_level == 0
            assert 3.0 < (await wait_of(pool, WaitReason.HOST_PAUSED)).seconds <= 4.0
            assert rows(database)[in_flight[5].user_agent].status is AgentStatus.AVAILABLE

    run(scenario)


def test_concurrent_429s_are_one_event(database: Database, tmp_path: Path) -> None:
    empty_pool(database, 12)

    async def scenario() -> None:
        async with opened(tmp_path, database) as (pool, _):
            in_flight = await bookings(pool, 12)
            await asyncio.gather(
                *(
                    pool.record_429(booking, None, url=f"/listing?pageNo={n}", control=True)
                    for n, booking in enumerate(in_flight)
                )
            )
            assert shared(database).pause_level == 0
            assert {row.status for row in rows(database).values()} == {AgentStatus.AVAILABLE}
            assert 1.0 < (await wait_of(pool, WaitReason.HOST_PAUSED)).seconds <= 2.0

    run(scenario)


@pytest.mark.parametrize("urls", ["/item/{}/detail/top", "/auction_products/{}/options"])
def test_429s_of_products_alone_are_no_storm_and_suspend_no_more_than_a_tenth_of_the_pool(
    database: Database, tmp_path: Path, redis_server: RedisServer, urls: str
) -> None:
    """Three products that always answered 429 suspended 41 of 50 agents, or paused the host again and again."""
    empty_pool(database, 30)

    async def scenario() -> None:
        async with opened(tmp_path, database, redis_server.url) as (pool, _):
            for number, booking in enumerate(await bookings(pool, 25)):
                await pool.record_429(booking, None, url=urls.format(number))
                assert resting(database) <= 3
            assert (resting(database), shared(database).paused_until) == (3, None)

    run(scenario)


def test_a_control_that_is_refused_makes_no_storm_of_one_product(database: Database, tmp_path: Path) -> None:
    """Its detail and its options are one product: a storm is always many."""
    empty_pool(database, 30)

    async def scenario() -> None:
        async with opened(tmp_path, database) as (pool, _):
            *products, control = await bookings(pool, 25)
            for number, booking in enumerate(products):
                url = f"/auction_products/{number % 3}/options" if number % 2 else product(number % 3)
                await pool.record_429(booking, None, url=url)
            await pool.record_429(control, None, url="/listing", control=True)
            assert shared(database).paused_until is None

    run(scenario)


def test_a_url_at_fault_gives_its_agents_back_whichever_worker_suspended_them(
    database: Database, tmp_path: Path, redis_server: RedisServer
) -> None:
    empty_pool(database, 40)

    async def scenario() -> None:
        async with (
            opened(tmp_path, database, redis_server.url) as (one, _),
            opened(tmp_path, database, redis_server.url) as (other, _),
        ):
            mine, theirs = await bookings(one, 2), await bookings(other, 1)
            await one.record_429(mine[0], None, url=product(1))
            await one.record_429(mine[1], None, url=product(2))
            await other.record_429(theirs[0], None, url=product(1))
            assert resting(database) == 3
            await other.give_back(product(1))
            known = rows(database)
            assert {(known[b.user_agent].status, known[b.user_agent].health) for b in (mine[0], theirs[0])} == {
                (AgentStatus.AVAILABLE, 100)
            }
            assert (known[mine[1].user_agent].status, resting(database)) == (AgentStatus.SUSPENDED, 1)

    run(scenario)


def test_agents_that_were_refused_a_url_pay_once_it_is_answered_to_another(database: Database, tmp_path: Path) -> None:
    empty_pool(database, 12)

    async def scenario() -> None:
        async with opened(tmp_path, database) as (pool, _):
            first, second = await bookings(pool, 2)
            await pool.record_429(first, None, url=product(1))
            await pool.record_429(second, None, url=product(1))
            # A tenth of twelve is one: the second stays in use until more is known, with nothing but its token lost.
            row = rows(database)[second.user_agent]
            assert (row.status, row.health, row.token_expires_at) == (AgentStatus.AVAILABLE, 100, None)
            await pool.charge_429s(product(1), 7200.0)
            known = rows(database)
            assert {known[b.user_agent].status for b in (first, second)} == {AgentStatus.SUSPENDED}
            assert {known[b.user_agent].health for b in (first, second)} == {80}
            until_then = known[second.user_agent].suspended_until
            assert until_then is not None
            assert until_then - datetime.now(UTC) > timedelta(minutes=119)
            # What is decided leaves room for the next suspicion.
            third = await booking_of(pool)
            await pool.record_429(third, None, url=product(2))
            assert rows(database)[third.user_agent].status is AgentStatus.SUSPENDED

    run(scenario)


def test_agents_that_pay_for_half_of_the_answers_at_five_urls_were_throttled_by_the_host(
    database: Database, tmp_path: Path
) -> None:
    """A host that refuses every other call has every URL answered at the second try."""
    empty_pool(database, 20)

    async def scenario() -> None:
        async with opened(tmp_path, database) as (pool, _):
            for number in range(5):
                assert shared(database).paused_until is None
                await pool.record_429(await booking_of(pool), None, url=product(number))
                await pool.settle(await booking_of(pool), Outcome.SUCCESS)
                await pool.charge_429s(product(number), None)
            assert resting(database) == 0
            await wait_of(pool, WaitReason.HOST_PAUSED)

    run(scenario)


def test_no_agent_pays_for_a_burst_of_429s_that_was_over_before_a_control_was_refused(
    database: Database, tmp_path: Path
) -> None:
    """Its URLs are answered at the next try, one after the other: that would look like agents at fault."""
    empty_pool(database, 30)

    async def scenario() -> None:
        async with opened(tmp_path, database) as (pool, _):
            for number, booking in enumerate(await bookings(pool, 20)):
                await pool.record_429(booking, None, url=product(number))
            for number in range(20):
                await pool.settle(await booking_of(pool), Outcome.SUCCESS)
                await pool.charge_429s(product(number), None)
            assert (resting(database), shared(database).paused_until) == (0, None)

    run(scenario)


def test_five_429s_among_many_good_answers_are_no_storm(database: Database, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path, database, breaker_min_available=0, undecided_share=1) as (pool, _):
            for _ in range(12):
                await pool.settle(await booking_of(pool), Outcome.SUCCESS)
            await refuse(pool, await bookings(pool, 5))
            assert resting(database) == 5
            assert shared(database).paused_until is None

    run(scenario)


def test_a_storm_is_seen_however_many_good_answers_came_just_before(database: Database, tmp_path: Path) -> None:
    empty_pool(database, 25)

    async def scenario() -> None:
        async with opened(tmp_path, database) as (pool, _):
            for _ in range(12):
                await pool.settle(await booking_of(pool), Outcome.SUCCESS)
            in_flight = await bookings(pool, 10)
            await refuse(pool, in_flight[:9])
            assert shared(database).paused_until is None
            await pool.record_429(in_flight[9], None, url="/listing?sellerId=s", control=True)
            assert {row.status for row in rows(database).values()} == {AgentStatus.AVAILABLE}
            assert (await wait_of(pool, WaitReason.HOST_PAUSED)).seconds <= 2.0

    run(scenario)


def test_a_storm_is_seen_however_slowly_its_answers_come_and_no_agent_stays_suspended(
    database: Database, tmp_path: Path
) -> None:
    """Below an answer a second five agents never fell into the last seconds: the pool was burnt, agent by agent."""
    empty_pool(database, 20)

    async def scenario() -> None:
        async with opened(tmp_path, database, storm_window_seconds=0.05) as (pool, _):
            in_flight = await bookings(pool, 10)
            for number, booking in enumerate(in_flight[:9]):
                await pool.record_429(booking, None, url=product(number))
                await asyncio.sleep(0.1)
            assert shared(database).paused_until is None
            await pool.record_429(in_flight[9], None, url="/listing?sellerId=s", control=True)
            assert {(row.status, row.health) for row in rows(database).values()} == {(AgentStatus.AVAILABLE, 100)}
            await wait_of(pool, WaitReason.HOST_PAUSED)

    run(scenario)


def test_slow_429s_with_good_answers_in_between_are_no_storm(database: Database, tmp_path: Path) -> None:
    empty_pool(database, 20)

    async def scenario() -> None:
        async with opened(tmp_path, database, storm_window_seconds=0.05) as (pool, _):
            in_flight = await bookings(pool, 12)
            for number, booking in enumerate(in_flight):
                if number == 6:
                    await pool.settle(await booking_of(pool), Outcome.SUCCESS)
                await pool.record_429(booking, None, url=product(number), control=True)
                await asyncio.sleep(0.1)
            assert shared(database).paused_until is None

    run(scenario)


def test_a_good_answer_long_before_a_429_still_ends_the_pause(database: Database, tmp_path: Path) -> None:
    """Only the last seconds were looked at: one 429 a while after a storm doubled the pause of everybody."""

    async def scenario() -> None:
        async with opened(tmp_path, database, storm_pause_seconds=0.2, storm_window_seconds=1.0) as (pool, _):
            await refuse(pool, await bookings(pool, 5))
            await asyncio.sleep((await wait_of(pool, WaitReason.HOST_PAUSED)).seconds + 0.05)
            await pool.settle(await booking_of(pool), Outcome.SUCCESS)
            await asyncio.sleep(1.1)
            late = await booking_of(pool)
            await pool.record_429(late, None, url="/listing", control=True)
            assert shared(database).pause_level == 0
            assert rows(database)[late.user_agent].status is AgentStatus.SUSPENDED

    run(scenario)


def test_a_429_right_after_a_pause_is_the_same_storm_until_a_good_answer_ends_it(
    database: Database, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with opened(tmp_path, database, storm_pause_seconds=0.2) as (pool, _):
            await refuse(pool, await bookings(pool, 5))
            await asyncio.sleep((await wait_of(pool, WaitReason.HOST_PAUSED)).seconds + 0.05)
            # A product may be throttled whatever the host does: what is asked as a control decides.
            await pool.record_429(await booking_of(pool), None, url=product(1))
            assert shared(database).pause_level == 0
            await pool.record_429(await booking_of(pool), None, url="/listing", control=True)
            assert shared(database).pause_level == 1
            assert {(row.status, row.health) for row in rows(database).values()} == {(AgentStatus.AVAILABLE, 100)}
            await asyncio.sleep((await wait_of(pool, WaitReason.HOST_PAUSED)).seconds + 0.05)
            first, second = await bookings(pool, 2)
            await pool.settle(first, Outcome.SUCCESS)
            await pool.record_429(second, None, url="/listing", control=True)
            assert shared(database).pause_level == 1
            assert rows(database)[second.user_agent].status is AgentStatus.SUSPENDED

    run(scenario)


def test_what_a_storm_is_is_for_the_settings_to_say(database: Database, tmp_path: Path) -> None:
    rules = {
        "storm_agents": 2,
        "storm_urls": 2,
        "storm_share": 1.0,
        "storm_pause_seconds": 30,
    }

    async def scenario() -> None:
        async with opened(tmp_path, database, breaker_min_available=0, **rules) as (pool, _):
            first, second = await bookings(pool, 2)
            await pool.record_429(first, None, url=product(1))
            assert rows(database)[first.user_agent].health == 80
            await pool.record_429(second, None, url="/listing", control=True)
            assert {(row.status, row.health) for row in rows(database).values()} == {(AgentStatus.AVAILABLE, 100)}
            assert 28.0 < (await wait_of(pool, WaitReason.HOST_PAUSED)).seconds <= 30.0

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
            waiting = await wait_of(pool, WaitReason.LIMIT)
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
            await wait_of(pool, WaitReason.NO_AGENTS)

    run(scenario)
