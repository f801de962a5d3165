"""The limiter on Redis: one Lua call books the best agent within both limits, or says when the next is free."""

import time
from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

from mustit_pipeline.agents import redis_scripts as lua
from mustit_pipeline.agents.limiter import FreeIn, Slot
from mustit_pipeline.agents.redis_link import RedisLink
from mustit_pipeline.domain.states import AgentStatus
from mustit_pipeline.store.agent_bookings import AgentLimits, SeedAgent
from mustit_pipeline.store.agents import AgentRow

ENDS_A_CALL = 4000
AGENTS_A_CALL = 500


class RedisForgot(Exception):
    """Redis does not hold the counts of this epoch: it was flushed, restarted or seeded by somebody else."""


class RedisDamaged(RedisForgot):
    """Redis holds the epoch but not all of its counts: something was evicted or deleted."""


def _micros(seconds: float) -> int:
    return round(seconds * 1_000_000)


class RedisLimiter:
    """Counts in Redis, on Redis's clock."""

    def __init__(self, link: RedisLink, limits: AgentLimits) -> None:
        self._link = link
        self._limits = (limits.requests, _micros(limits.window), _micros(limits.gap))

    async def acquire(self, epoch: int, hold: float, now: float | None = None) -> Slot | FreeIn:
        booking_id, booked = uuid4(), time.monotonic()
        answer = await self._call(lua.ACQUIRE, epoch, now, _micros(hold), str(booking_id))
        match answer[0]:
            case b"booked":
                return Slot(booking_id, UUID(answer[1].decode()), int(answer[2]), booked, booked + hold)
            case b"wait":
                return FreeIn(answer[1] / 1_000_000)
            case _:
                return FreeIn(None)

    async def settle(self, epoch: int, slot: Slot, now: float | None = None) -> None:
        await self._call(lua.END, epoch, now, str(slot.agent_id), str(slot.booking_id), 1, 0)

    async def withdraw(self, epoch: int, slot: Slot, pause: float, now: float | None = None) -> None:
        await self._call(lua.END, epoch, now, str(slot.agent_id), str(slot.booking_id), 0, _micros(pause))

    async def publish(self, epoch: int, agents: Sequence[AgentRow], now: float | None = None) -> None:
        await self._publish(epoch, agents, now)

    async def seed(
        self, epoch: int, used: Sequence[SeedAgent], agents: Sequence[AgentRow], now: float | None = None
    ) -> None:
        """Replace whatever Redis holds by what PostgreSQL knows; nobody books before the last step."""
        seeding = f"seed-{epoch}-{uuid4()}"
        _checked(await self._link.call(lua.SEED_BEGIN, epoch, seeding))
        for agent in used:
            booking, ends_in = str(agent.open_booking or ""), _micros(agent.open_ends)
            # In parts, oldest first: a script with very many arguments would hold everybody up.
            for start in range(0, max(1, len(agent.ends)), ENDS_A_CALL):
                ends = [_micros(end) for end in agent.ends[start : start + ENDS_A_CALL]]
                await self._call(lua.SEED_ENDS, seeding, now, str(agent.agent_id), booking, ends_in, *ends)
        await self._publish(seeding, agents, now)
        _checked(await self._link.call(lua.SEED_COMMIT, epoch, seeding))

    async def _publish(self, permit: int | str, agents: Sequence[AgentRow], now: float | None) -> None:
        present = time.time() if now is None else now
        for start in range(0, len(agents), AGENTS_A_CALL):
            facts: list[str | int] = []
            for agent in agents[start : start + AGENTS_A_CALL]:
                expires = agent.token_expires_at
                facts += [
                    str(agent.agent_id),
                    agent.revision,
                    1 if agent.status is AgentStatus.AVAILABLE else 0,
                    agent.health,
                    0 if expires is None else _micros(expires.timestamp() - present),
                    agent.token_no,
                ]
            await self._call(lua.PUBLISH, permit, now, *facts)

    async def _call(self, script: str, permit: int | str, now: float | None, *arguments: str | int) -> list[Any]:
        clock = "" if now is None else _micros(now)
        return _checked(await self._link.call(script, permit, clock, *self._limits, *arguments))


def _checked(answer: list[Any]) -> list[Any]:
    if answer[0] == b"forgot":
        raise RedisForgot("Redis does not hold these counts")
    if answer[0] == b"damaged":
        raise RedisDamaged("Redis has lost a part of its counts")
    return answer
