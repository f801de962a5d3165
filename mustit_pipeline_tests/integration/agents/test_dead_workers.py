"""Workers that died while Redis counted: what they may have left unwritten counts as used, and no more than that."""

import asyncio
import threading
import time
from collections import defaultdict
from uuid import UUID

import pytest
from sqlalchemy import event, text

from mustit_pipeline.agents import shared_limiter
from mustit_pipeline.agents.limiter import Slot
from mustit_pipeline.agents.redis_link import PREFIX
from mustit_pipeline.agents.shared_limiter import LEASE_SECONDS, MOVE_SECONDS, SharedLimiter
from mustit_pipeline.agents.sql.agent_bookings import AgentLimits
from mustit_pipeline.foundation.database import Database
from mustit_pipeline_tests.integration.agents.servers import RedisServer

HOLD = 0.6
USUAL = AgentLimits(requests=80, window=3600.0, gap=1.0)


async def taken_over(heir: SharedLimiter, redis_server: RedisServer) -> None:
    """Redis is gone, and PostgreSQL counts from what is known."""
    assert heir.counter == "redis"
    redis_server.kill()
    while heir.counter != "postgres":
        await heir.sync()
        await asyncio.sleep(0.05)


def charged(database: Database) -> set[int]:
    """How many requests each agent is taken to have used."""
    counts = "SELECT (SELECT count(*) FROM agent_bookings b WHERE b.agent_id = a.agent_id) FROM user_agents a"
    with database.reading() as connection:
        return set(connection.execute(text(counts)).scalars())


def test_what_a_dead_worker_left_unwritten_counts_as_used(database: Database, redis_server: RedisServer) -> None:
    limits = AgentLimits(requests=20, window=60.0, gap=0.0)

    async def scenario() -> None:
        dead, heir = (SharedLimiter(database, limits, HOLD, redis_server.url) for _ in range(2))
        await dead.start()
        await heir.start()
        lost = [slot for slot in [await dead.acquire() for _ in range(6)] if isinstance(slot, Slot)]
        assert len(lost) == 6
        redis_server.kill()
        started = time.monotonic()
        used: dict[UUID, int] = defaultdict(int)
        while True:
            answer = await heir.acquire()
            if isinstance(answer, Slot):
                used[answer.agent_id] += 1
                await heir.settle(answer)
            elif answer.seconds is not None and answer.seconds > 5:
                break
            else:
                await asyncio.sleep(min(answer.seconds or 0.05, 0.2))
        assert time.monotonic() - started >= MOVE_SECONDS
        # Two bookings of each agent may go unwritten with this limit, and the dead worker had made one.
        assert {*used.values()} == {limits.requests - 2}
        await heir.close()

    asyncio.run(scenario())


def test_a_dead_worker_is_charged_no_more_than_it_could_book_in_its_lease(
    database: Database, redis_server: RedisServer
) -> None:
    """Each was once charged a tenth of the limit: ten that had booked nothing shut the pool for an hour."""

    async def scenario() -> None:
        dead = [SharedLimiter(database, USUAL, HOLD, redis_server.url) for _ in range(10)]
        heir = SharedLimiter(database, USUAL, HOLD, redis_server.url)
        for limiter in (*dead, heir):
            await limiter.start()
        await taken_over(heir, redis_server)
        assert charged(database) == {len(dead) * (1 + int(LEASE_SECONDS / USUAL.gap))}
        await heir.close()

    asyncio.run(scenario())


def test_a_worker_that_died_before_redis_counted_is_charged_nothing(
    database: Database, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Soon no worker waits any more for one that has no way to Redis.
    monkeypatch.setattr(shared_limiter, "MOVE_SECONDS", 0.1)

    async def scenario() -> None:
        for _ in range(10):
            await SharedLimiter(database, USUAL, HOLD, None).start()
        await asyncio.sleep(0.3)
        heir = SharedLimiter(database, USUAL, HOLD, redis_server.url)
        await heir.start()
        await taken_over(heir, redis_server)
        assert charged(database) == {0}
        await heir.close()

    asyncio.run(scenario())


def test_nothing_is_booked_in_redis_before_postgres_knows_that_this_worker_may(
    database: Database, redis_server: RedisServer
) -> None:
    """One that died in between would be charged nothing."""
    reported, go_on = threading.Semaphore(0), threading.Event()
    reports: list[str] = []

    def hold_up(_: object, __: object, statement: str, *___: object) -> None:
        if "INTO pool_workers" in statement:
            reports.append(statement)
            if len(reports) == 2:
                reported.release()
                go_on.wait(30)

    async def scenario() -> None:
        limiter = SharedLimiter(database, USUAL, HOLD, redis_server.url)
        await limiter.start()
        # As if Redis had been left and entered again by others.
        with database.transaction() as connection:
            epoch = connection.execute(text("UPDATE pool_state SET epoch = epoch + 2 RETURNING epoch")).scalar_one()
        redis_server.client().set(f"{PREFIX}epoch", epoch)
        event.listen(database.engine, "before_cursor_execute", hold_up)
        try:
            learning = asyncio.create_task(limiter.sync())
            await asyncio.to_thread(reported.acquire)
            booking = asyncio.create_task(limiter.acquire())
            await asyncio.wait([booking], timeout=0.3)
            assert not booking.done()
        finally:
            go_on.set()
        await learning
        assert isinstance(await booking, Slot)
        await limiter.close()

    try:
        asyncio.run(scenario())
    finally:
        event.remove(database.engine, "before_cursor_execute", hold_up)
