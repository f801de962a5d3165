"""The limiter on Redis: one Lua call books the best agent within both limits, or returns when the next one is free."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence
from functools import lru_cache
from typing import Any, Generic, TypeVar
from uuid import UUID, uuid4

from mustit_pipeline.agents import redis_scripts as lua
from mustit_pipeline.agents.limiter import FreeIn, Slot
from mustit_pipeline.agents.redis_link import RedisLink
from mustit_pipeline.agents.sql.agent_bookings import AgentLimits, SeedAgent
from mustit_pipeline.agents.sql.agents import AgentRow
from mustit_pipeline.domain.states import AgentStatus
from mustit_pipeline.foundation.random_ids import random_uuids

ENDS_A_CALL = 4000
AGENTS_A_CALL = 500
MOST_A_CALL = 200
K = TypeVar("K", bound=Hashable)
A = TypeVar("A")
R = TypeVar("R")

# The same agents again and again: reading or writing an id takes longer than finding it.
_agent_id = lru_cache(10_000)(UUID)
_agent_text = lru_cache(10_000)(str)


def _micros(seconds: float) -> int:
    return round(seconds * 1_000_000)


class _BatchedCalls(Generic[K, A, R]):
    """Batches calls: requests that come during a call are sent together as the next one, to save round trips."""

    def __init__(self, send: Callable[[K, list[A]], Awaitable[Sequence[R]]]) -> None:
        self._send = send
        self._asked: dict[K, list[tuple[A, asyncio.Future[R]]]] = {}
        self._going: dict[K, asyncio.Task[None]] = {}

    def ask(self, key: K, argument: A) -> asyncio.Future[R]:
        """The answer to one request; requests with the same key are sent together."""
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._asked.setdefault(key, []).append((argument, answer))
        if key not in self._going:
            self._going[key] = asyncio.create_task(self._go(key))
        return answer

    async def _go(self, key: K) -> None:
        try:
            while asked := self._asked.pop(key, None):
                # A script with very many arguments would block Redis for all clients.
                for start in range(0, len(asked), MOST_A_CALL):
                    batch = asked[start : start + MOST_A_CALL]
                    try:
                        answers = await self._send(key, [argument for argument, _ in batch])
                    except BaseException as error:
                        for _, waiting in batch:
                            if not waiting.done():
                                waiting.set_exception(error)
                                # Marks it as retrieved: its caller may have been cancelled meanwhile.
                                waiting.exception()
                        continue
                    for (_, waiting), answer in zip(batch, answers, strict=True):
                        if not waiting.done():
                            waiting.set_result(answer)
        finally:
            del self._going[key]


_Ending = tuple[Slot, int, int]


class RedisLimiter:
    """Counts in Redis, on Redis's clock."""

    def __init__(self, link: RedisLink, limits: AgentLimits) -> None:
        self._link = link
        self._limits = (limits.requests, _micros(limits.window), _micros(limits.gap))
        self._bookings = _BatchedCalls(self._book)
        self._endings = _BatchedCalls(self._end)

    async def acquire(self, epoch: int, hold: float, now: float | None = None) -> Slot | FreeIn:
        return await self._bookings.ask((epoch, hold, now), None)

    async def settle(self, epoch: int, slot: Slot, now: float | None = None) -> None:
        await self._endings.ask((epoch, now), (slot, 1, 0))

    async def withdraw(self, epoch: int, slot: Slot, pause: float, now: float | None = None) -> None:
        await self._endings.ask((epoch, now), (slot, 0, _micros(pause)))

    async def _book(self, key: tuple[int, float, float | None], asked: list[None]) -> list[Slot | FreeIn]:
        epoch, hold, now = key
        ids = random_uuids(len(asked))
        booked_at = time.monotonic()
        status, wait, listed = await self._call(lua.ACQUIRE, epoch, now, _micros(hold), *map(str, ids))
        # One text, not a list: the client parses the entries of a list one by one.
        booked = listed.decode().split()
        agents = map(_agent_id, booked[::2])
        slots = [
            Slot(booking_id, agent_id, int(token_no), booked_at, booked_at + hold)
            for booking_id, agent_id, token_no in zip(ids, agents, booked[1::2], strict=False)
        ]
        free = FreeIn(wait / 1_000_000 if status == b"wait" else None)
        return [*slots, *[free] * (len(ids) - len(slots))]

    async def _end(self, key: tuple[int, float | None], endings: list[_Ending]) -> list[None]:
        epoch, now = key
        facts = [
            fact
            for slot, sent, pause in endings
            for fact in (_agent_text(slot.agent_id), str(slot.booking_id), sent, pause)
        ]
        await self._call(lua.END, epoch, now, *facts)
        return [None] * len(endings)

    async def seed(
        self, epoch: int, used: Sequence[SeedAgent], agents: Sequence[AgentRow], now: float | None = None
    ) -> None:
        """Replace Redis's counts with PostgreSQL's; no worker can book before the last step."""
        seeding = f"seed-{epoch}-{uuid4()}"
        await self._link.call(lua.SEED_BEGIN, epoch, seeding)
        for agent in used:
            booking, ends_in = str(agent.open_booking or ""), _micros(agent.open_ends)
            # In parts, oldest first: a script with very many arguments would block Redis for all clients.
            for start in range(0, max(1, len(agent.ends)), ENDS_A_CALL):
                ends = [_micros(end) for end in agent.ends[start : start + ENDS_A_CALL]]
                await self._call(lua.SEED_ENDS, seeding, now, str(agent.agent_id), booking, ends_in, *ends)
        await self.publish(seeding, agents, now)
        await self._link.call(lua.SEED_COMMIT, epoch, seeding)

    async def publish(self, epoch: int | str, agents: Sequence[AgentRow], now: float | None = None) -> None:
        present = time.time() if now is None else now
        for start in range(0, len(agents), AGENTS_A_CALL):
            facts: list[str | int] = []
            for agent in agents[start : start + AGENTS_A_CALL]:
                expires = agent.token_expires_at
                facts += [
                    _agent_text(agent.agent_id),
                    agent.revision,
                    1 if agent.status is AgentStatus.AVAILABLE else 0,
                    agent.health,
                    0 if expires is None else _micros(expires.timestamp() - present),
                    agent.token_no,
                ]
            await self._call(lua.PUBLISH, epoch, now, *facts)

    async def _call(self, script: str, permit: int | str, now: float | None, *arguments: str | int) -> list[Any]:
        clock = "" if now is None else _micros(now)
        return await self._link.call(script, permit, clock, *self._limits, *arguments)
