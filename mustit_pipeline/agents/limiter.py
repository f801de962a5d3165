"""The port of the request counter; Redis or PostgreSQL counts, one of them at a time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from msgspec import Struct

from mustit_pipeline.agents.sql.agents import AgentRow


class Slot(Struct, frozen=True):
    """One request that an agent may send; times are this process's monotonic clock."""

    booking_id: UUID
    agent_id: UUID
    token_no: int
    booked: float
    expires: float


@dataclass(frozen=True, slots=True)
class FreeIn:
    """No agent is free now; the next one is in so many seconds, None if no agent is usable."""

    seconds: float | None


class Limiter(Protocol):
    """Books agents within their limits; `epoch` names the counter that the caller knows, and an old one books nothing.

    An agent has one request in flight, and its slot frees one window after the answer. A booking that is never settled
    counts as answered when its hold ends. `now` replaces the counter's own clock, in seconds.
    """

    async def acquire(self, epoch: int, hold: float, now: float | None = None) -> Slot | FreeIn:
        """Book the best free agent: valid token first, then health, then longest unused."""
        ...

    async def settle(self, epoch: int, slot: Slot, now: float | None = None) -> None:
        """The answer has arrived."""
        ...

    async def withdraw(self, epoch: int, slot: Slot, pause: float, now: float | None = None) -> None:
        """Nothing was sent and nothing will be; the agent is free after `pause` seconds."""
        ...

    async def publish(self, epoch: int, agents: Sequence[AgentRow], now: float | None = None) -> None:
        """Publish the agents' status, health and tokens to the counter."""
        ...
