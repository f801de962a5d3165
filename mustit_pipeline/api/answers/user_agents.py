"""User agents and their pool."""

from typing import Literal

from pydantic import Field

from mustit_pipeline.agents.roster import PoolStatus
from mustit_pipeline.api.models import Answer, Id, Time
from mustit_pipeline.domain.states import AgentStatus


class AgentAnswer(Answer):
    """A user agent, without its session."""

    agent_id: Id = Field(examples=["3f2c90d4-51b7-4f0e-8a6d-9c1e2b3a4d5f"])
    user_agent: str = Field(examples=["Mozilla/5.0 (Linux; Android 14; SM-S921N) AppleWebKit/537.36"])
    status: AgentStatus
    health: int = Field(examples=[100])
    requests_today: int
    token_expires_at: Time | None = Field(description="The end of its session with the marketplace")
    suspended_until: Time | None
    last_used_at: Time | None
    reason: str | None = Field(description="Why it is suspended or blocked")


class PoolAnswer(Answer):
    """How many agents are usable, and what limits them."""

    total_count: int = Field(examples=[50])
    available_count: int = Field(examples=[48])
    suspended_count: int = Field(examples=[1])
    blocked_count: int = Field(examples=[1])
    with_token_count: int
    circuit: Literal["closed", "open", "half-open"]
    circuit_open_until: Time | None
    host_paused_until: Time | None
    next_recovery_at: Time | None
    next_free_at: Time | None
    requests_today: int
    requests_in_window: int
    requests_per_window: int
    requests_in_flight: int
    counted_by: str = Field(examples=["redis"])

    @classmethod
    def whole(cls, pool: PoolStatus, requests_per_agent: int) -> "PoolAnswer":
        """The pool, and what it may ask for in a window."""
        return cls(
            total_count=pool.total,
            available_count=pool.available,
            suspended_count=pool.suspended,
            blocked_count=pool.blocked,
            with_token_count=pool.with_token,
            circuit=pool.circuit,
            circuit_open_until=pool.circuit_open_until,
            host_paused_until=pool.host_paused_until,
            next_recovery_at=pool.next_recovery_at,
            next_free_at=pool.next_free_at,
            requests_today=pool.requests_today,
            requests_in_window=pool.used_in_window,
            requests_per_window=pool.available * requests_per_agent,
            requests_in_flight=pool.in_flight,
            counted_by=pool.counter,
        )
