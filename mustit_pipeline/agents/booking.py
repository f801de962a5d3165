"""What the pool answers a worker that wants to send a request."""

from dataclasses import dataclass
from enum import Enum
from uuid import UUID

from msgspec import Struct

from mustit_pipeline.marketplace.session import Session


class Booking(Struct, frozen=True):
    """One request that may be sent now, and no later than `send_before` on this process's monotonic clock."""

    agent_id: UUID
    user_agent: str
    session: Session
    booking_id: UUID
    send_before: float


class WaitReason(Enum):
    """Why no request may be sent."""

    LIMIT = "limit"
    BREAKER = "breaker"
    HOST_PAUSED = "host paused"
    NO_AGENTS = "no agents"
    NO_TOKEN = "no token"


@dataclass(frozen=True, slots=True)
class Wait:
    """No request may be sent for so many seconds."""

    seconds: float
    reason: WaitReason
