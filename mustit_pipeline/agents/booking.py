"""The pool's answers to a worker that wants to send a request."""

from dataclasses import dataclass, field
from uuid import UUID

from mustit_pipeline.marketplace.session import Session


@dataclass(frozen=True, slots=True)
class Booking:
    """One request that may be sent now, and no later than `send_before` on this process's monotonic clock."""

    agent_id: UUID
    user_agent: str
    session: Session = field(repr=False)
    booking_id: UUID
    send_before: float


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing may be sent for so many seconds: "limit", "breaker", "host paused", "no agents" or "tokens"."""

    seconds: float
    reason: str
