"""Too few usable agents: the breaker opens, tries once, and closes."""

import asyncio
import time
from pathlib import Path

import pytest

from mustit_pipeline.agents.pool import Booking, Outcome
from mustit_pipeline.store.database import Database
from mustit_pipeline_tests.integration.agents.servers import empty_pool
from mustit_pipeline_tests.integration.agents.visits import (
    block,
    booking_of,
    opened,
    refused,
    run,
    shared,
    until,
    wait_of,
)


def test_too_few_agents_open_the_breaker_and_one_good_trial_closes_it(database: Database, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path, database, breaker_cooldown_seconds=1.0) as (pool, _):
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
def test_a_bad_trial_opens_the_breaker_again(database: Database, tmp_path: Path, throttled: bool) -> None:
    async def scenario() -> None:
        async with opened(tmp_path, database, breaker_cooldown_seconds=0.8) as (pool, _):
            block(database, *(f"agent-{number:03}" for number in range(1, 6)))
            await asyncio.sleep((await refused(pool)).seconds + 0.05)
            trial = await booking_of(pool)
            if throttled:
                await pool.throttled(trial, None)
            else:
                await pool.settle(trial, Outcome.SERVER_ERROR)
            assert 0.3 < (await wait_of(pool, "breaker")).seconds <= 0.8

    run(scenario)


def test_a_trial_that_decides_nothing_leaves_room_for_another(database: Database, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path, database, breaker_cooldown_seconds=0.3) as (pool, _):
            block(database, *(f"agent-{number:03}" for number in range(1, 6)))
            await asyncio.sleep((await refused(pool)).seconds + 0.05)
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
