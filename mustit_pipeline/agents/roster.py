"""The roster of agents for people and schedules: load, list, block, recover, and the state of the pool."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from sqlalchemy import Connection

from mustit_pipeline.agents.builtin import BUILTIN
from mustit_pipeline.agents.rules import agent_rules, limits_of
from mustit_pipeline.agents.sql import agent_bookings, agent_pool, agents
from mustit_pipeline.agents.sql.agents import AgentRow
from mustit_pipeline.domain.errors import ValidationFailed
from mustit_pipeline.domain.states import AGENT, AgentStatus
from mustit_pipeline.domain.user_agent import AgentRules, UserAgent
from mustit_pipeline.domain.values import UserAgentId
from mustit_pipeline.foundation.audited import State, Target
from mustit_pipeline.settings import Settings

LONGEST_USER_AGENT = 1000
Circuit = Literal["closed", "open", "half-open"]

BLOCKED_BY_ADMIN = "blocked by an admin"


@dataclass(frozen=True, slots=True)
class LoadReport:
    """The result of loading a list of user agents; rejected ones with line number and reason."""

    added: int
    known: int
    rejected: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class PoolStatus:
    """The pool at one moment."""

    total: int
    available: int
    suspended: int
    blocked: int
    with_token: int
    circuit: Circuit
    circuit_open_until: datetime | None
    host_paused_until: datetime | None
    next_recovery_at: datetime | None
    next_free_at: datetime | None
    requests_today: int
    used_in_window: int
    in_flight: int
    counter: str


def ensure_builtin(connection: Connection) -> int:
    """Add the built-in agents that are missing; returns their number."""
    return agents.insert_agents(connection, [_new(line) for line in BUILTIN])


def load(connection: Connection, lines: Iterable[str]) -> LoadReport:
    """Add user agents, one a line; blank lines and lines that start with # are left out."""
    wanted: dict[str, UserAgent] = {}
    rejected: list[tuple[int, str]] = []
    repeated = 0
    for number, line in enumerate(lines, start=1):
        user_agent = line.strip().removeprefix("\ufeff")
        if not user_agent or user_agent.startswith("#"):
            continue
        if user_agent in wanted:
            repeated += 1
            continue
        try:
            wanted[user_agent] = _new(user_agent)
        except ValidationFailed as error:
            rejected.append((number, error.english))
    added = agents.insert_agents(connection, list(wanted.values()))
    return LoadReport(added, len(wanted) - added + repeated, tuple(rejected))


def list_agents(connection: Connection) -> list[AgentRow]:
    """Every agent, in the order in which they were added."""
    return agents.read_agents(connection)


def left_in_window(connection: Connection, settings: Settings, agent_ids: Sequence[UUID]) -> dict[UUID, int]:
    """How many requests each of these agents may still send in its window."""
    limits = limits_of(settings)
    used = agent_bookings.used_by(connection, agent_ids, limits)
    return {agent_id: limits.requests - used[agent_id] for agent_id in agent_ids}


def pool_status(connection: Connection, settings: Settings, now: datetime) -> PoolStatus:
    """How many agents are usable, and why others are not."""
    pool, rows = agent_pool.read_pool(connection), agents.read_agents(connection)
    resting = [row.suspended_until for row in rows if row.suspended_until is not None]
    paused = pool.paused_until if pool.paused_until is not None and pool.paused_until > now else None
    today = agents.requests_today(connection, now)
    used, in_flight = agent_bookings.in_window(connection, settings.window_seconds)
    return PoolStatus(
        total=len(rows),
        available=sum(row.status is AgentStatus.AVAILABLE for row in rows),
        suspended=sum(row.status is AgentStatus.SUSPENDED for row in rows),
        blocked=sum(row.status is AgentStatus.BLOCKED for row in rows),
        with_token=sum(row.token_expires_at is not None and row.token_expires_at > now for row in rows),
        circuit=circuit_of(pool.breaker_open_until, now),
        circuit_open_until=pool.breaker_open_until,
        host_paused_until=paused,
        next_recovery_at=min(resting, default=None),
        next_free_at=agent_bookings.next_free_at(connection, limits_of(settings)),
        requests_today=today,
        used_in_window=used,
        in_flight=in_flight,
        counter=pool.counter,
    )


def circuit_of(open_until: datetime | None, now: datetime) -> Circuit:
    """The state of the breaker."""
    if open_until is None:
        return "closed"
    return "open" if open_until > now else "half-open"


def block(connection: Connection, agent_id: UUID) -> AgentRow:
    """Block an agent for an admin; no rule unblocks it."""
    return _change(connection, AgentRules(), agent_id, UserAgent.block, BLOCKED_BY_ADMIN)


def unblock(connection: Connection, settings: Settings, agent_id: UUID) -> AgentRow:
    """Unblock an agent for an admin."""
    return _change(connection, agent_rules(settings), agent_id, UserAgent.unblock, None)


def unblock_all(connection: Connection, settings: Settings) -> list[AgentRow]:
    """Unblock every blocked agent for an admin; returns them as they were, with the reason."""
    agent_pool.read_pool(connection, lock=True)
    blocked = [row for row in agents.read_agents(connection) if row.status is AgentStatus.BLOCKED]
    locked = agents.lock_agents(connection, [row.agent_id for row in blocked], agent_rules(settings))
    freed = [agent for agent in locked if agent.status is AgentStatus.BLOCKED]
    for agent in freed:
        agent.unblock()
    agents.save_agents(connection, freed, None)
    ids = {agent.id.value for agent in freed}
    return [row for row in blocked if row.agent_id in ids]


def end_pause(connection: Connection) -> datetime | None:
    """End the host's pause for an admin; returns its planned end, None if there was no pause."""
    return agent_pool.end_pause(connection)


def close_circuit(connection: Connection, settings: Settings) -> datetime | None:
    """Close the breaker for an admin; returns the planned end, None if it was closed."""
    return agent_pool.close_breaker(connection, settings.breaker_cooldown_seconds)


def recover_suspended(connection: Connection, settings: Settings, now: datetime) -> int:
    """Recover every agent whose suspension is over; returns their number."""
    agent_pool.read_pool(connection, lock=True)
    resting = AGENT.sources("recover")
    due = [row.agent_id for row in agents.read_agents(connection) if row.status in resting]
    locked = agents.lock_agents(connection, due, agent_rules(settings))
    rested = [agent for agent in locked if agent.is_recoverable(now)]
    for agent in rested:
        agent.recover(now)
    agents.save_agents(connection, rested, None)
    return len(rested)


def target(agent_id: UUID) -> Target:
    """An agent as the audit log shows it."""

    def seen(connection: Connection) -> State:
        agent = agents.read_agent(connection, agent_id)
        return {"status": agent.status.value, "reason": agent.reason}

    return Target(f"agent {agent_id}", seen)


def _look_at_all(connection: Connection) -> State:
    """What an admin changes for all agents at once, as the audit log shows it."""
    pool = agent_pool.read_pool(connection)
    blocked = [str(row.agent_id) for row in agents.read_agents(connection) if row.status is AgentStatus.BLOCKED]
    return {"circuitOpenUntil": pool.breaker_open_until, "pausedUntil": pool.paused_until, "blocked": blocked}


ALL_AGENTS = Target("agents", _look_at_all)
# Without a look: what is loaded is seen in the list of agents.
NEW_AGENTS = Target(ALL_AGENTS.name)


def _change(
    connection: Connection, rules: AgentRules, agent_id: UUID, change: Callable[[UserAgent], None], reason: str | None
) -> AgentRow:
    agent_pool.read_pool(connection, lock=True)
    agents.read_agent(connection, agent_id)
    locked = agents.lock_agents(connection, [agent_id], rules)
    for agent in locked:
        change(agent)
    agents.save_agents(connection, locked, reason)
    return agents.read_agent(connection, agent_id)


def _new(user_agent: str) -> UserAgent:
    if not (user_agent.isascii() and user_agent.isprintable()) or len(user_agent) > LONGEST_USER_AGENT:
        raise ValidationFailed(
            "VALIDATION_USER_AGENT",
            korean=f"User-Agent는 {LONGEST_USER_AGENT}자 이하의 출력 가능한 ASCII 문자여야 합니다",
            english=f"A user agent is printable ASCII text of at most {LONGEST_USER_AGENT} characters",
        )
    return UserAgent(id=UserAgentId.new(), user_agent=user_agent)
