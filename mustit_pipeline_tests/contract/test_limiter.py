"""One suite for both counters: with each of them the marketplace never sees too much."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest

from mustit_pipeline.agents.limiter import FreeIn, Limiter, Slot
from mustit_pipeline.agents.redis_limiter import RedisLimiter
from mustit_pipeline.agents.redis_link import RedisForgot, RedisLink
from mustit_pipeline.agents.sql import agent_bookings
from mustit_pipeline.agents.sql.agent_bookings import AgentLimits, BookingRecord, CountedElsewhere
from mustit_pipeline.agents.sql.agents import read_agents
from mustit_pipeline.domain.states import AgentStatus
from mustit_pipeline_tests.contract.limiter_counters import EPOCH, HOLD, START, THREE_A_MINUTE, Counter, counter_of
from mustit_pipeline_tests.integration.agents.servers import (
    empty_pool,
    most_in_a_window,
)


@pytest.fixture(scope="module", params=["redis", "postgres"])
def counter(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Counter]:
    with counter_of(request.param, tmp_path_factory.mktemp("limiter")) as found:
        yield found


async def booked(limiter: Limiter, now: float) -> Slot:
    slot = await limiter.acquire(EPOCH, HOLD, now=now)
    assert isinstance(slot, Slot), slot
    return slot


async def free_in(limiter: Limiter, now: float) -> float:
    answer = await limiter.acquire(EPOCH, HOLD, now=now)
    assert isinstance(answer, FreeIn), answer
    assert answer.seconds is not None
    return answer.seconds


def test_an_agent_has_one_request_in_flight(counter: Counter) -> None:
    async def scenario(limiter: Limiter) -> None:
        first = await booked(limiter, START)
        await free_in(limiter, START + 5)
        await limiter.settle(EPOCH, first, now=START + 5)
        await booked(limiter, START + 6)

    counter.run(THREE_A_MINUTE, 1, scenario)


def test_the_gap_runs_from_the_answer_and_the_wait_is_exact(counter: Counter) -> None:
    async def scenario(limiter: Limiter) -> None:
        slot = await booked(limiter, START)
        await limiter.settle(EPOCH, slot, now=START + 4)
        wait = await free_in(limiter, START + 4.25)
        assert wait == pytest.approx(0.75, abs=1e-5)
        await free_in(limiter, START + 4.25 + wait - 0.001)
        await booked(limiter, START + 4.25 + wait)

    counter.run(THREE_A_MINUTE, 1, scenario)


def test_a_slot_frees_one_window_after_the_answer_not_after_the_booking(counter: Counter) -> None:
    async def scenario(limiter: Limiter) -> None:
        for booked_at, answered_at in ((0, 8), (10, 11), (20, 21)):
            slot = await booked(limiter, START + booked_at)
            await limiter.settle(EPOCH, slot, now=START + answered_at)
        assert await free_in(limiter, START + 61) == pytest.approx(7.0, abs=1e-5)
        await booked(limiter, START + 68)

    counter.run(THREE_A_MINUTE, 1, scenario)


def test_a_booking_whose_worker_died_counts_as_answered_when_it_expires(counter: Counter) -> None:
    async def scenario(limiter: Limiter) -> None:
        for dies_at in (0, 20, 40):
            await booked(limiter, START + dies_at)
        assert await free_in(limiter, START + 51.5) == pytest.approx(18.5, abs=1e-5)
        await booked(limiter, START + 70)

    counter.run(THREE_A_MINUTE, 1, scenario)


def test_an_answer_after_its_booking_expired_counts_from_when_it_came(counter: Counter) -> None:
    async def scenario(limiter: Limiter) -> None:
        late = await booked(limiter, START)
        second = await booked(limiter, START + 11)
        await limiter.settle(EPOCH, late, now=START + 12)
        await limiter.settle(EPOCH, second, now=START + 13)
        arrivals = [12.0, 13.0]
        now = 14.0
        while now < 71.9:
            answer = await limiter.acquire(EPOCH, HOLD, now=START + now)
            if isinstance(answer, Slot):
                arrivals.append(now)
                await limiter.settle(EPOCH, answer, now=START + now)
            now += 1.0
        assert most_in_a_window(arrivals, 60.0) <= 3

    counter.run(THREE_A_MINUTE, 1, scenario)


def test_a_withdrawn_booking_costs_nothing_but_its_pause(counter: Counter) -> None:
    async def scenario(limiter: Limiter) -> None:
        for attempt in range(5):
            slot = await booked(limiter, START + attempt)
            await limiter.withdraw(EPOCH, slot, 0.5, now=START + attempt)
            assert await free_in(limiter, START + attempt) == pytest.approx(0.5, abs=1e-5)
        for used in range(3):
            slot = await booked(limiter, START + 10 + 2 * used)
            await limiter.settle(EPOCH, slot, now=START + 10 + 2 * used)
        assert await free_in(limiter, START + 20) == pytest.approx(50.0, abs=1e-5)

    counter.run(THREE_A_MINUTE, 1, scenario)


def test_one_request_a_window_is_a_limit_too(counter: Counter) -> None:
    async def scenario(limiter: Limiter) -> None:
        slot = await booked(limiter, START)
        await limiter.settle(EPOCH, slot, now=START + 2)
        assert await free_in(limiter, START + 3) == pytest.approx(59.0, abs=1e-5)
        dead = await booked(limiter, START + 62)
        assert dead.booking_id != slot.booking_id
        assert await free_in(limiter, START + 62) == pytest.approx(HOLD + 60.0, abs=1e-5)

    counter.run(AgentLimits(1, 60.0, 1.0), 1, scenario)


def test_the_choice_is_token_then_health_then_longest_unused(counter: Counter) -> None:
    async def scenario(limiter: Limiter) -> None:
        with counter.database.reading() as connection:
            rows = read_agents(connection)
        soon, later = datetime.fromtimestamp(START + 5, UTC), datetime.fromtimestamp(START + 600, UTC)
        told = [
            replace(rows[0], health=100, revision=1),
            replace(rows[1], health=40, revision=1, token_expires_at=later),
            replace(rows[2], health=90, revision=1, token_expires_at=later),
            replace(rows[3], health=100, revision=1, token_expires_at=soon),
            replace(rows[4], health=100, revision=1, status=AgentStatus.BLOCKED, token_expires_at=later),
        ]
        await counter.tell(limiter, told, START)
        order = [(await booked(limiter, START + 10)).agent_id for _ in range(4)]
        assert order[:2] == [rows[2].agent_id, rows[1].agent_id]
        assert set(order[2:]) == {rows[0].agent_id, rows[3].agent_id}
        await free_in(limiter, START + 10)

    counter.run(THREE_A_MINUTE, 5, scenario)


def test_among_equals_the_longest_unused_agent_is_chosen(counter: Counter) -> None:
    async def scenario(limiter: Limiter) -> None:
        rounds: list[list[UUID]] = []
        for start in (0, 5, 10):
            used: list[UUID] = []
            for step in range(4):
                slot = await booked(limiter, START + start + step)
                await limiter.settle(EPOCH, slot, now=START + start + step)
                used.append(slot.agent_id)
            rounds.append(used)
        assert rounds[0] == rounds[1] == rounds[2]
        assert len(set(rounds[0])) == 4

    counter.run(THREE_A_MINUTE, 4, scenario)


def test_no_usable_agent_is_not_a_time_to_wait(counter: Counter) -> None:
    async def scenario(limiter: Limiter) -> None:
        with counter.database.reading() as connection:
            rows = read_agents(connection)
        await counter.tell(limiter, [replace(rows[0], revision=1, status=AgentStatus.SUSPENDED)], START)
        assert await limiter.acquire(EPOCH, HOLD, now=START) == FreeIn(None)
        await counter.tell(limiter, [replace(rows[0], revision=2)], START)
        await booked(limiter, START)

    counter.run(THREE_A_MINUTE, 1, scenario)


def test_suspension_does_not_forget_what_was_used(counter: Counter) -> None:
    async def scenario(limiter: Limiter) -> None:
        with counter.database.reading() as connection:
            rows = read_agents(connection)
        for second in (0, 2, 4):
            slot = await booked(limiter, START + second)
            if second == 4:
                await counter.tell(limiter, [replace(rows[0], revision=1, status=AgentStatus.SUSPENDED)], START)
            await limiter.settle(EPOCH, slot, now=START + second)
        await counter.tell(limiter, [replace(rows[0], revision=2)], START + 5)
        assert await free_in(limiter, START + 5) == pytest.approx(55.0, abs=1e-5)

    counter.run(THREE_A_MINUTE, 1, scenario)


def test_another_epoch_books_nothing(counter: Counter) -> None:
    async def scenario(limiter: Limiter) -> None:
        with pytest.raises((RedisForgot, CountedElsewhere)):
            await limiter.acquire(EPOCH + 1, HOLD, now=START)

    counter.run(THREE_A_MINUTE, 1, scenario)


def test_every_slot_of_every_agent_is_used_when_there_is_work(counter: Counter) -> None:
    """Fifty agents would do the same: each window is filled to its last request."""
    limits = AgentLimits(requests=8, window=60.0, gap=1.0)

    async def scenario(limiter: Limiter) -> None:
        used, now = 0, 0.0
        while now < 180.0:
            answer = await limiter.acquire(EPOCH, HOLD, now=START + now)
            if isinstance(answer, FreeIn):
                assert answer.seconds is not None
                now += answer.seconds
                continue
            used += 1
            await limiter.settle(EPOCH, answer, now=START + now + 0.05)
        assert used >= 0.99 * 3 * 3 * limits.requests

    counter.run(limits, 3, scenario)


def test_counts_survive_the_way_from_postgres_to_redis(counter: Counter) -> None:
    """Ages, not times, are carried over: both counters then say the same."""
    if counter.name == "postgres":
        pytest.skip("PostgreSQL's own counts need no seed")
    empty_pool(counter.database, 1)
    with counter.database.transaction() as connection:
        agent = read_agents(connection)[0].agent_id
        agent_bookings.record(connection, [_used(agent, ago) for ago in (50.0, 40.0, 30.0)], THREE_A_MINUTE)

    async def seeded() -> None:
        counter.redis.client().flushall()
        link = await RedisLink.open(counter.redis.url)
        try:
            limiter = RedisLimiter(link, THREE_A_MINUTE)
            with counter.database.reading() as connection:
                seed, rows = agent_bookings.read_seed(connection, THREE_A_MINUTE), read_agents(connection)
            await limiter.seed(1, seed, rows)
            answer = await limiter.acquire(1, HOLD)
            assert isinstance(answer, FreeIn)
            assert answer.seconds == pytest.approx(10.0, abs=1.0)
            with pytest.raises(RedisForgot):
                await limiter.seed(0, seed, rows)
        finally:
            await link.close()

    asyncio.run(seeded())


def _used(agent_id: UUID, ago: float) -> BookingRecord:
    return BookingRecord(uuid4(), agent_id, ago + 1, 0.0, answered_ago=ago, throttled=False, fresh=True)
