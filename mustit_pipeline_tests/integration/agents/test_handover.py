"""However workers and a Redis that is lost, emptied or set back take turns: no window holds too much."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from mustit_pipeline.agents import redis_door, shared_limiter
from mustit_pipeline.agents.limiter import FreeIn, Slot
from mustit_pipeline.agents.shared_limiter import SharedLimiter
from mustit_pipeline.agents.sql.agent_bookings import AgentLimits
from mustit_pipeline.foundation.database import Database
from mustit_pipeline_tests.integration.agents.servers import RedisServer, empty_pool, most_in_a_window, smallest_gap

WORKERS = 3
HOLD = 0.1
# Clocks of three processes; they agree far better than this.
SLACK = 0.001


@dataclass
class Crew:
    """Workers that share a pool, and every request of theirs as the marketplace may have counted it."""

    database: Database
    limits: AgentLimits
    url: str
    workers: list[SharedLimiter] = field(default_factory=list[SharedLimiter])
    dead: list[SharedLimiter] = field(default_factory=list[SharedLimiter])
    in_flight: list[tuple[SharedLimiter, Slot, float]] = field(default_factory=list[tuple[SharedLimiter, Slot, float]])
    arrivals: dict[UUID, list[float]] = field(default_factory=lambda: defaultdict(list))

    async def join(self) -> None:
        worker = SharedLimiter(self.database, self.limits, HOLD, self.url)
        await worker.start()
        self.workers.append(worker)

    async def book(self, worker: SharedLimiter) -> None:
        answer = await worker.acquire()
        if isinstance(answer, Slot) and (since := await self._sent(worker, answer)):
            self.in_flight.append((worker, answer, since))

    async def work(self, worker: SharedLimiter, times: int) -> float:
        """Requests one after another, each answered at once, while an agent is free; says when the next one is."""
        for _ in range(times):
            answer = await worker.acquire()
            if isinstance(answer, FreeIn):
                await asyncio.sleep(min(answer.seconds or 0.0, 0.02))
                return answer.seconds or 0.0
            if sent := await self._sent(worker, answer):
                self.arrivals[answer.agent_id].append(sent)
                await worker.settle(answer)
        return 0.0

    async def answer(self, which: int, share: float) -> None:
        """The request was counted at some moment since its booking, within its worker's deadline."""
        if not self.in_flight:
            return
        worker, slot, since = self.in_flight.pop(which % len(self.in_flight))
        self._arrived(slot, since, min(time.monotonic(), slot.expires), share)
        await worker.settle(slot)

    async def die(self, worker: SharedLimiter, times: int, share: float) -> None:
        """In the middle of its work: what is unwritten stays so, what was sent may still be on its way."""
        await self.work(worker, times)
        self.workers.remove(worker)
        self.dead.append(worker)
        for owner, slot, since in self.in_flight:
            if owner is worker:
                self._arrived(slot, since, slot.expires, share)
        self.in_flight = [entry for entry in self.in_flight if entry[0] is not worker]
        await self.join()

    async def exhaust(self) -> None:
        """Use whatever seems to be left of a long window: what was forgotten on the way is now too much."""
        left = self.limits.window > 1
        while left:
            left = await self.work(self.workers[0], self.limits.requests) < 1

    async def leave(self) -> None:
        for _, slot, since in self.in_flight:
            self._arrived(slot, since, slot.expires, 1.0)
        for worker in self.workers:
            await worker.close()
        for worker in self.dead:
            await worker._door.close()

    async def _sent(self, worker: SharedLimiter, slot: Slot) -> float | None:
        """When a request is sent; a worker that was held up until its booking expired does not send it."""
        now = time.monotonic()
        if now < slot.expires:
            return now
        await worker.withdraw(slot, 0.0)
        return None

    def _arrived(self, slot: Slot, since: float, latest: float, share: float) -> None:
        self.arrivals[slot.agent_id].append(since + share * max(0.0, latest - since))


Step = tuple[str, int, float]
KINDS = ["book", "work", "work", "answer", "answer", "sync", "die", "die", "wait"]
FAULTS = ["flush", "restart", "snapshot", "kill", "start"]
STEPS = st.lists(
    st.tuples(st.sampled_from(KINDS + FAULTS), st.integers(0, WORKERS - 1), st.floats(0.0, 1.0)),
    min_size=10,
    max_size=30,
)
LIMITS = st.builds(
    AgentLimits,
    requests=st.sampled_from([1, 3, 20]),
    window=st.sampled_from([60.0, 60.0, 0.3]),
    gap=st.sampled_from([0.0, 0.02]),
)


async def play(crew: Crew, redis: RedisServer, steps: list[Step]) -> None:
    faults: dict[str, Callable[[], object]] = {
        "flush": lambda: redis.is_running and redis.client().flushall(),
        "snapshot": lambda: redis.is_running and redis.client().save(),
        "kill": redis.kill,
        "start": lambda: redis.is_running or redis.start(),
        "restart": lambda: (redis.kill(), redis.start()),
    }
    for _ in range(WORKERS):
        await crew.join()
    for action, which, share in steps:
        worker = crew.workers[which]
        if action in faults:
            # While no worker looks, or all of them book.
            booking = crew.workers if share > 0.5 else []
            await asyncio.gather(asyncio.to_thread(faults[action]), *map(crew.book, booking))
        elif action == "book":
            await crew.book(worker)
        elif action == "work":
            await crew.work(worker, 1 + int(5 * share))
        elif action == "answer":
            await crew.answer(which, share)
        elif action == "sync":
            await worker.sync()
        elif action == "die":
            await crew.die(worker, int(4 * share), share)
        else:
            await asyncio.sleep(0.2 * share)
    await crew.exhaust()
    await crew.leave()


def test_no_hand_over_ever_lets_a_window_exceed_its_limit(
    pool_database: Database, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The same order of times as ever, but a hand-over from a silent worker takes no seconds.
    monkeypatch.setattr(shared_limiter, "LEASE_SECONDS", 0.1)
    monkeypatch.setattr(shared_limiter, "MOVE_SECONDS", 0.15)
    monkeypatch.setattr(shared_limiter, "SEEDING_SECONDS", 0.1)
    monkeypatch.setattr(redis_door, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(redis_door, "LONGEST_PAUSE", 0.02)
    seen = {"requests": 0, "hand-overs": 0}

    @given(steps=STEPS, limits=LIMITS, agents=st.integers(1, 2))
    # Real time does not repeat itself: a shorter example would prove nothing about the one that failed.
    @settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow], phases=[Phase.generate])
    def check(steps: list[Step], limits: AgentLimits, agents: int) -> None:
        empty_pool(pool_database, agents)
        redis_server.kill()
        (redis_server.folder / "dump.rdb").unlink(missing_ok=True)
        redis_server.start()
        crew = Crew(pool_database, limits, redis_server.url)
        asyncio.run(play(crew, redis_server, steps))
        for moments in crew.arrivals.values():
            assert most_in_a_window(moments, limits.window - SLACK) <= limits.requests
            assert smallest_gap(moments) >= limits.gap - SLACK
        seen["requests"] += sum(map(len, crew.arrivals.values()))
        with pool_database.reading() as connection:
            seen["hand-overs"] += connection.execute(text("SELECT epoch FROM pool_state")).scalar_one()

    check()
    assert min(seen.values()) > 0
