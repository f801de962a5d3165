"""The pool of user agents: their state, and which are blocked."""

from typing import Annotated

from fastapi import APIRouter
from pydantic import Field

from mustit_pipeline.agents import roster
from mustit_pipeline.agents.sql import agents
from mustit_pipeline.agents.sql.agents import AgentRow
from mustit_pipeline.api.answers.user_agents import AgentAnswer, PoolAnswer
from mustit_pipeline.api.context import Asking, Caller
from mustit_pipeline.api.models import Answer, Body, Pages, Text
from mustit_pipeline.api.paging import PageNumber, Size, pages
from mustit_pipeline.api.paths import IdInPath
from mustit_pipeline.domain.filters import IdPrefix
from mustit_pipeline.domain.states import AgentStatus
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database

router = APIRouter(prefix="/user-agents", tags=["user agents"])


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


@router.get("")
def list_user_agents(
    caller: Asking, status: AgentStatus | None = None, page: PageNumber = 0, size: Size = 20
) -> Pages[AgentAnswer]:
    """User agents in the order in which they were added."""
    with caller.database.reading() as connection:
        found = [agent for agent in roster.list_agents(connection) if status in (None, agent.status)]
    shown = found[page * size : (page + 1) * size]
    return pages([AgentAnswer.of(agent) for agent in shown], len(found), page, size)


@router.post("", status_code=201)
def add_user_agents(body: NewAgents, caller: Asking) -> AddedAgents:
    """Add user agents to the pool."""
    with caller.audited("agents.load", roster.NEW_AGENTS).transaction() as connection:
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
    with caller.audited("agents.resume", roster.ALL_AGENTS).transaction() as connection:
        roster.close_circuit(connection, caller.settings)
        roster.end_pause(connection)
    return _pool(caller)


def _pool(caller: Caller) -> PoolAnswer:
    with caller.database.reading() as connection:
        pool = roster.pool_status(connection, caller.settings, utc_now())
    return PoolAnswer.whole(pool, caller.settings.requests_per_hour)


@router.post("/{id}/block")
def block_user_agent(wanted: IdInPath, caller: Asking) -> AgentAnswer:
    """Take an agent out of use until it is unblocked."""
    agent = _find(caller.database, wanted)
    database = caller.audited("agent.block", roster.target(agent.agent_id))
    with database.transaction() as connection:
        return AgentAnswer.of(roster.block(connection, agent.agent_id))


@router.post("/{id}/unblock")
def unblock_user_agent(wanted: IdInPath, caller: Asking) -> AgentAnswer:
    """Put a blocked agent back into use, with a new token."""
    agent = _find(caller.database, wanted)
    database = caller.audited("agent.unblock", roster.target(agent.agent_id))
    with database.transaction() as connection:
        return AgentAnswer.of(roster.unblock(connection, caller.settings, agent.agent_id))


def _find(database: Database, wanted: IdPrefix) -> AgentRow:
    with database.reading() as connection:
        return agents.find(connection, wanted)
