"""Too few usable agents: the breaker opens, tries once, and closes."""

import asyncio
from pathlib import Path

import pytest
from sqlalchemy import text

from mustit_pipeline.agents.pool import Booking, Outcome, WaitReason
from mustit_pipeline.foundation.database import Database
from mustit_pipeline_tests.integration.agents.servers import empty_pool
from mustit_pipeline_tests.integration.agents.visits import (
    block,
    booking_of,
    opened,
    product,
    refused,
    run,
    shared,
    until,
    wait_of,
)

# Longer than twice what a scenario may take: however slow the machine is, more than half of it is left at any time.
COOLDOWN = 60.0


def forward(database: Database, moment: str) -> None:
    """A moment of the pool that was still to come is now."""
    with database.transaction() as connection:
        assert connection.execute(text(f"UPDATE pool_state SET {moment} = now() WHERE {moment} > now()")).rowcount == 1


def test_too_few_agents_open_the_breaker_and_one_good_trial_closes_it(database: Database, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path, database, breaker_cooldown_seconds=COOLDOWN) as (pool, _):
            block(database, *(f"agent-{number:03}" for number in range(1, 6)))
            assert COOLDOWN / 2 < (await refused(pool)).seconds <= COOLDOWN
            forward(database, "breaker_open_until")
            trial = await booking_of(pool)
            await wait_of(pool, WaitReason.BREAKER)
            await pool.settle(trial, Outcome.SUCCESS)
            assert shared(database).breaker_open_until is None
            # Still one of six: not judged again before the cool-down has passed.
            for _ in range(14):
                await pool.settle(await booking_of(pool), Outcome.SUCCESS)
                await asyncio.sleep(0.05)
            assert shared(database).breaker_open_until is None
            forward(database, "breaker_judge_after")
            await until(lambda: shared(database).breaker_open_until is not None)

    run(scenario)


@pytest.mark.parametrize("throttled", [True, False])
def test_a_bad_trial_opens_the_breaker_again(database: Database, tmp_path: Path, throttled: bool) -> None:
    async def scenario() -> None:
        async with opened(tmp_path, database, breaker_cooldown_seconds=COOLDOWN) as (pool, _):
            block(database, *(f"agent-{number:03}" for number in range(1, 6)))
            await refused(pool)
            forward(database, "breaker_open_until")
            trial = await booking_of(pool)
            if throttled:
                await pool.record_429(trial, None, url="/listing", control=True)
            else:
                await pool.settle(trial, Outcome.SERVER_ERROR)
            assert COOLDOWN / 2 < (await wait_of(pool, WaitReason.BREAKER)).seconds <= COOLDOWN

    run(scenario)


@pytest.mark.parametrize("throttled", [True, False])
def test_a_trial_that_decides_nothing_leaves_room_for_another(
    database: Database, tmp_path: Path, throttled: bool
) -> None:
    """A product that is always throttled, crawled first, kept the breaker open trial by trial."""

    async def scenario() -> None:
        async with opened(tmp_path, database, breaker_cooldown_seconds=0.3) as (pool, _):
            block(database, *(f"agent-{number:03}" for number in range(1, 6)))
            await asyncio.sleep((await refused(pool)).seconds + 0.05)
            if throttled:
                await pool.record_429(await booking_of(pool), None, url=product(1))
                await pool.give_back(product(1))
            else:
                await pool.settle(await booking_of(pool), Outcome.UNAUTHORIZED)
            again = await pool.acquire()
            assert isinstance(again, Booking)
            await pool.settle(again, Outcome.SUCCESS)
            assert shared(database).breaker_open_until is None

    run(scenario)


def test_exactly_a_fifth_of_the_agents_is_enough(database: Database, tmp_path: Path) -> None:
    empty_pool(database, 35)

    async def scenario() -> None:
        async with opened(tmp_path, database) as (pool, _):
            block(database, *(f"agent-{number:03}" for number in range(28)))
            await asyncio.sleep(1.2)
            assert shared(database).breaker_open_until is None
            block(database, "agent-028")
            await refused(pool)

    run(scenario)
