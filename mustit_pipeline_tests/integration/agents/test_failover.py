"""Redis lost, flushed, slow or restarted in the middle of a crawl: the limits hold, and the work goes on."""

import asyncio
import math
import re
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from random import Random
from uuid import UUID

import pytest
from sqlalchemy import text

from mustit_pipeline.agents.limiter import FreeIn, Slot
from mustit_pipeline.agents.redis_link import PREFIX
from mustit_pipeline.agents.redis_scripts import SCRIPTS
from mustit_pipeline.agents.shared_limiter import SharedLimiter
from mustit_pipeline.agents.sql.agent_bookings import AgentLimits
from mustit_pipeline.agents.sql.agents import read_agents
from mustit_pipeline.foundation.database import Database
from mustit_pipeline_tests.integration.agents.servers import (
    RedisServer,
    empty_pool,
    most_in_a_window,
    smallest_gap,
)

LIMITS = AgentLimits(requests=6, window=1.5, gap=0.03)
HOLD = 0.6
Arrivals = dict[UUID, list[float]]


async def crawl(limiter: SharedLimiter, arrivals: Arrivals, over: Callable[[], bool], seed: int) -> None:
    """A worker whose requests arrive at some moment between booking and answer."""
    random = Random(seed)

    async def keep_going() -> None:
        while not over():
            answer = await limiter.acquire()
            if isinstance(answer, FreeIn):
                await asyncio.sleep(min(answer.seconds or 0.05, 0.2))
                continue
            await asyncio.sleep(random.uniform(0, 0.02))
            arrivals[answer.agent_id].append(time.monotonic())
            await asyncio.sleep(random.uniform(0, 0.02))
            await limiter.settle(answer)

    async def report() -> None:
        while True:
            await asyncio.sleep(0.2)
            await limiter.sync()
            with limiter._database.reading() as connection:
                agents = read_agents(connection)
            await limiter.publish(agents)

    reporting = asyncio.create_task(report())
    try:
        await asyncio.gather(*(keep_going() for _ in range(3)))
    finally:
        reporting.cancel()
        with suppress(asyncio.CancelledError):
            await reporting


async def disturbed(
    database: Database, redis: RedisServer, seconds: float, fault: Callable[[], object], workers: int = 2
) -> tuple[Arrivals, float, list[str]]:
    """Workers crawl, the fault happens after half a second; returns what arrived, when it happened, and who counts."""
    limiters = [SharedLimiter(database, LIMITS, HOLD, redis.url) for _ in range(workers)]
    arrivals: Arrivals = defaultdict(list)
    for limiter in limiters:
        await limiter.start()
    assert {limiter.counter for limiter in limiters} == {"redis"}
    until = time.monotonic() + seconds

    def over() -> bool:
        return time.monotonic() >= until

    crawls = [asyncio.create_task(crawl(each, arrivals, over, number)) for number, each in enumerate(limiters)]
    await asyncio.sleep(0.5)
    happened = time.monotonic()
    await asyncio.to_thread(fault)
    await asyncio.gather(*crawls)
    counters = [limiter.counter for limiter in limiters]
    for limiter in limiters:
        await limiter.close()
    return arrivals, happened, counters


def assert_limits_held(arrivals: Arrivals) -> None:
    for moments in arrivals.values():
        assert most_in_a_window(moments, LIMITS.window) <= LIMITS.requests
        assert smallest_gap(moments) >= LIMITS.gap


def after(arrivals: Arrivals, moment: float) -> int:
    return sum(arrival > moment for moments in arrivals.values() for arrival in moments)


def test_limits_hold_and_work_goes_on_when_redis_is_killed(database: Database, redis_server: RedisServer) -> None:
    arrivals, happened, counters = asyncio.run(disturbed(database, redis_server, 3.0, redis_server.kill))
    assert_limits_held(arrivals)
    assert set(counters) == {"postgres"}
    assert after(arrivals, happened + 1.0) >= LIMITS.requests


def test_limits_hold_when_redis_is_flushed_and_it_counts_again(database: Database, redis_server: RedisServer) -> None:
    arrivals, happened, counters = asyncio.run(
        disturbed(database, redis_server, 3.2, lambda: redis_server.client().flushall())
    )
    assert_limits_held(arrivals)
    assert set(counters) == {"redis"}
    assert after(arrivals, happened + 1.0) >= LIMITS.requests


def test_limits_hold_when_redis_restarts_empty(database: Database, redis_server: RedisServer) -> None:
    def restart() -> None:
        redis_server.kill()
        redis_server.start()

    arrivals, happened, counters = asyncio.run(disturbed(database, redis_server, 3.2, restart))
    assert_limits_held(arrivals)
    assert set(counters) == {"redis"}
    assert after(arrivals, happened + 1.0) >= LIMITS.requests


def test_limits_hold_when_redis_restarts_with_an_old_snapshot(database: Database, redis_server: RedisServer) -> None:
    """Every key is there, the epoch too: only the server's run id tells that the counts are old."""

    def restart() -> None:
        redis_server.kill()
        redis_server.start()

    async def scenario() -> None:
        limiter = SharedLimiter(database, LIMITS, HOLD, redis_server.url)
        await limiter.start()
        redis_server.client().save()
        slots = [slot for slot in [await limiter.acquire() for _ in range(6)] if isinstance(slot, Slot)]
        assert len(slots) == 6
        await asyncio.to_thread(restart)
        assert redis_server.client().get("mustit:{agents}:epoch") is not None
        await limiter.sync()
        assert isinstance(await limiter.acquire(), FreeIn)
        await limiter.close()

    asyncio.run(scenario())


def test_limits_hold_when_redis_stalls_and_comes_back(database: Database, redis_server: RedisServer) -> None:
    def stall() -> None:
        redis_server.stall()
        time.sleep(1.2)
        redis_server.go_on()

    arrivals, happened, _ = asyncio.run(disturbed(database, redis_server, 3.2, stall))
    assert_limits_held(arrivals)
    assert after(arrivals, happened + 1.0) >= LIMITS.requests


@pytest.mark.parametrize("lost", [("e:*",), ("ready", "waiting")], ids=["counts", "lists"])
def test_evicted_keys_are_noticed_by_the_next_acquire(
    database: Database, redis_server: RedisServer, lost: tuple[str, ...]
) -> None:
    async def scenario() -> None:
        limiter = SharedLimiter(database, LIMITS, HOLD, redis_server.url)
        await limiter.start()
        slot = await limiter.acquire()
        assert isinstance(slot, Slot)
        await limiter.settle(slot)
        before = _epoch(database)
        client = redis_server.client()
        client.delete(*(key for name in lost for key in client.keys(PREFIX + name)))
        await asyncio.sleep(2 * LIMITS.gap)
        for _ in range(6):
            assert isinstance(await limiter.acquire(), Slot)
        assert _epoch(database) > before
        await limiter.close()

    asyncio.run(scenario())


def test_a_seed_replaces_what_redis_no_longer_knew_it_had(database: Database, redis_server: RedisServer) -> None:
    async def scenario() -> None:
        limiter = SharedLimiter(database, LIMITS, HOLD, redis_server.url)
        await limiter.start()
        before = _epoch(database)
        redis_server.client().delete(f"{PREFIX}ids")
        with database.reading() as connection:
            agents = read_agents(connection)
        await limiter.publish(agents)
        await limiter.sync()
        # Left and entered once each.
        assert (limiter.counter, _epoch(database)) == ("redis", before + 2)
        await limiter.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("name", sorted(set(re.findall(r"p \.\. '([a-z_]+:?)'", "".join(SCRIPTS)))))
def test_limits_hold_and_every_agent_works_on_when_redis_loses_a_key(
    database: Database, redis_server: RedisServer, name: str
) -> None:
    """Without the lists of agents no agent was ever free again, and that went unnoticed."""
    empty_pool(database, 12)
    arrivals: Arrivals = defaultdict(list)
    lost: list[float] = []

    def has_gone_on() -> bool:
        """Whether each agent has worked for more than a window since then."""
        since = lost[0] if lost else math.inf
        return len(arrivals) == 12 and all(
            sum(arrival > since for arrival in moments) > LIMITS.requests for moments in arrivals.values()
        )

    async def scenario() -> None:
        limiters = [SharedLimiter(database, LIMITS, HOLD, redis_server.url) for _ in range(2)]
        for limiter in limiters:
            await limiter.start()
        end = time.monotonic() + 30

        def over() -> bool:
            return has_gone_on() or time.monotonic() > end

        crawls = [asyncio.create_task(crawl(each, arrivals, over, number)) for number, each in enumerate(limiters)]
        await asyncio.sleep(0.3)
        # Only a seed under way has its own key, and while no agent is left there is no list of those that are ready.
        while not (await asyncio.to_thread(lose, redis_server, name) or name == "seeding"):
            assert time.monotonic() < end
        lost.append(time.monotonic())
        await asyncio.gather(*crawls)
        for limiter in limiters:
            await limiter.close()

    asyncio.run(scenario())
    assert_limits_held(arrivals)
    assert has_gone_on()


def lose(redis_server: RedisServer, name: str) -> int:
    """Delete a key, or one of those that begin so."""
    client = redis_server.client()
    keys = client.keys(f"{PREFIX}{name}*") if name.endswith(":") else [f"{PREFIX}{name}"]
    return client.delete(*keys[:1]) if keys else 0


def test_a_worker_without_redis_makes_all_count_in_postgres(database: Database, redis_server: RedisServer) -> None:
    async def scenario() -> None:
        rich = SharedLimiter(database, LIMITS, HOLD, redis_server.url)
        await rich.start()
        poor = SharedLimiter(database, LIMITS, HOLD, None)
        for _ in range(4):
            await poor.sync()
            await rich.sync()
        assert (rich.counter, poor.counter) == ("postgres", "postgres")
        assert isinstance(await poor.acquire(), Slot)
        assert isinstance(await rich.acquire(), Slot)
        await poor.close()
        await rich.sync()
        assert rich.counter == "redis"
        await rich.close()

    asyncio.run(scenario())


def test_a_withdrawn_booking_stays_withdrawn_while_reports_are_written(database: Database) -> None:
    """A report under way once wrote a removed booking down again, and its agent was lost until it expired."""
    empty_pool(database, 1)

    async def scenario() -> None:
        limiter = SharedLimiter(database, AgentLimits(1000, 60.0, 0.0), 30.0, None)
        await limiter.start()
        for _ in range(40):
            slot = await limiter.acquire()
            assert isinstance(slot, Slot)
            await asyncio.gather(limiter.sync(), limiter.withdraw(slot, 0.0), limiter.sync())
        await limiter.close()

    asyncio.run(scenario())


def test_a_worker_that_hears_nothing_from_postgres_stops_booking_in_redis(
    database: Database, redis_server: RedisServer
) -> None:
    async def scenario() -> None:
        limiter = SharedLimiter(database, LIMITS, HOLD, redis_server.url)
        await limiter.start()
        limiter._confirmed = float("-inf")
        with database.transaction() as connection:
            connection.execute(text("UPDATE pool_state SET counter = 'moving', epoch = epoch + 1, moved_at = now()"))
        assert isinstance(await limiter.acquire(), Slot)
        assert limiter.counter in ("postgres", "redis")
        assert _epoch(database) > 1
        await limiter.close()

    asyncio.run(scenario())


def test_a_closed_worker_leaves_every_booking_and_no_trace_of_itself(
    database: Database, redis_server: RedisServer
) -> None:
    async def scenario() -> None:
        limiter = SharedLimiter(database, LIMITS, HOLD, redis_server.url)
        await limiter.start()
        slots = [slot for slot in [await limiter.acquire() for _ in range(3)] if isinstance(slot, Slot)]
        await limiter.settle(slots[0])
        await limiter.close()

    asyncio.run(scenario())
    with database.reading() as connection:
        rows = connection.execute(
            text("SELECT count(*), count(answered_at), (SELECT count(*) FROM pool_workers) FROM agent_bookings")
        ).one()
        today = connection.execute(text("SELECT sum(requests_today) FROM user_agents")).scalar_one()
    assert tuple(rows) == (3, 1, 0)
    assert today == 3


def _epoch(database: Database) -> int:
    with database.reading() as connection:
        return connection.execute(text("SELECT epoch FROM pool_state")).scalar_one()
