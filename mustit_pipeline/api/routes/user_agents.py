"""The pool of user agents: their state, and which are blocked."""

from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import Field

from mustit_pipeline.agents import roster
from mustit_pipeline.agents.sql import agents
from mustit_pipeline.agents.sql.agents import AgentRow
from mustit_pipeline.api.context import Asking, Caller
from mustit_pipeline.api.models import Answer, Body, Pages, Text, Time
from mustit_pipeline.api.paging import PageNumber, Size, pages
from mustit_pipeline.api.paths import IdInPath
from mustit_pipeline.domain.filters import IdPrefix
from mustit_pipeline.domain.states import AgentStatus
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database

router = APIRouter(prefix="/user-agents", tags=["user agents"])


class AgentAnswer(Answer):
    """A user agent, without its session."""

    agent_id: str = Field(examples=["3f2c90d4-51b7-4f0e-8a6d-9c1e2b3a4d5f"])
    user_agent: str = Field(examples=["Mozilla/5.0 (Linux; Android 14; SM-S921N) AppleWebKit/537.36"])
    status: AgentStatus
    health: int = Field(examples=[100])
    requests_today: int
    token_expires_at: Time | None = Field(description="The end of its session with the marketplace")
    suspended_until: Time | None
    last_used_at: Time | None
    reason: str | None = Field(description="Why it is suspended or blocked")


class NewAgents(Body):
    """User agents to add; blank ones and those that start with # are left out."""

    user_agents: Annotated[
        list[Annotated[Text, Field(max_length=roster.LONGEST_USER_AGENT)]],
        Field(max_length=1000, examples=[["Mozilla/5.0 (Linux; Android 14; SM-S921N) AppleWebKit/537.36"]]),
    ]


class Rejected(Answer):
    """One that was not added, by its place in the request, from 1."""

    number: int
    reason: str


class AddedAgents(Answer):
    """How many were added, how many were known already, and which were refused."""

    added: int
    known: int
    rejected: list[Rejected]


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


@router.get("")
def list_user_agents(
    caller: Asking, status: AgentStatus | None = None, page: PageNumber = 0, size: Size = 20
) -> Pages[AgentAnswer]:
    """User agents in the order in which they were added."""
    with caller.database.reading() as connection:
        found = [agent for agent in roster.list_agents(connection) if status in (None, agent.status)]
    shown = found[page * size : (page + 1) * size]
    return pages([_answer(agent) for agent in shown], len(found), page, size)


@router.post("", status_code=201)
def add_user_agents(body: NewAgents, caller: Asking) -> AddedAgents:
    """Add user agents to the pool."""
    with caller.audited("agents.load", "agents").transaction() as connection:
        report = roster.load(connection, body.user_agents)
    rejected = [Rejected(number=number, reason=reason) for number, reason in report.rejected]
    return AddedAgents(added=report.added, known=report.known, rejected=rejected)


@router.get("/status")
def show_pool(caller: Asking) -> PoolAnswer:
    """How many agents are usable, and why others are not."""
    return _pool(caller)


@router.post("/resume")
def resume_calls(caller: Asking) -> PoolAnswer:
    """End a pause of all calls and close the breaker, although the marketplace may still throttle."""
    with caller.audited("agents.resume", "agents", roster.look_at_pool).transaction() as connection:
        roster.close_circuit(connection, caller.settings)
        roster.end_pause(connection)
    return _pool(caller)


def _pool(caller: Caller) -> PoolAnswer:
    with caller.database.reading() as connection:
        pool = roster.pool_status(connection, caller.settings, utc_now())
    return PoolAnswer(
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
        requests_per_window=pool.available * caller.settings.requests_per_hour,
        requests_in_flight=pool.in_flight,
        counted_by=pool.counter,
    )


@router.post("/{id}/block")
def block_user_agent(wanted: IdInPath, caller: Asking) -> AgentAnswer:
    """Take an agent out of use until it is unblocked."""
    agent = _find(caller.database, wanted)
    database = caller.audited("agent.block", f"agent {agent.agent_id}", roster.look(agent.agent_id))
    with database.transaction() as connection:
        return _answer(roster.block(connection, agent.agent_id))


@router.post("/{id}/unblock")
def unblock_user_agent(wanted: IdInPath, caller: Asking) -> AgentAnswer:
    """Put a blocked agent back into use, with a new token."""
    agent = _find(caller.database, wanted)
    database = caller.audited("agent.unblock", f"agent {agent.agent_id}", roster.look(agent.agent_id))
    with database.transaction() as connection:
        return _answer(roster.unblock(connection, caller.settings, agent.agent_id))


def _find(database: Database, wanted: IdPrefix) -> AgentRow:
    with database.reading() as connection:
        return agents.find(connection, wanted)


def _answer(agent: AgentRow) -> AgentAnswer:
    return AgentAnswer(
        agent_id=str(agent.agent_id),
        user_agent=agent.user_agent,
        status=agent.status,
        health=agent.health,
        requests_today=agent.requests_today,
        token_expires_at=agent.token_expires_at,
        suspended_until=agent.suspended_until,
        last_used_at=agent.last_used_at,
        reason=agent.reason,
    )
