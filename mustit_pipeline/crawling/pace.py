"""The shortest time for a number of requests, computed from every agent's limits and present use."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from mustit_pipeline.agents.roster import PoolStatus
from mustit_pipeline.agents.rules import limits_of
from mustit_pipeline.agents.sql import agent_bookings
from mustit_pipeline.agents.sql.agent_bookings import AgentLimits, AgentUse
from mustit_pipeline.settings import Settings

PRECISION_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class _Run:
    """Requests of one agent that follow each other at the minimum gap; they repeat one cycle later."""

    start: float
    requests: int

    def sent_by(self, moment: float, gap: float, cycle: float) -> int:
        if moment < self.start:
            return 0
        cycles, since = divmod(moment - self.start, cycle)
        begun = self.requests if not gap else min(self.requests, int(since / gap) + 1)
        return int(cycles) * self.requests + begun


def held_for(pool: PoolStatus, now: datetime) -> float:
    """The seconds for which a host pause or the breaker stops all requests."""
    return (max(now, pool.host_paused_until or now, pool.circuit_open_until or now) - now).total_seconds()


def at_best(connection: Connection, settings: Settings, pool: PoolStatus, requests: int, now: datetime) -> float | None:
    """In how many seconds the present pool can send so many requests; None if no agent is usable."""
    limits = limits_of(settings)
    return seconds_for(agent_bookings.usable(connection, limits, now), limits, requests, start=held_for(pool, now))


def seconds_for(agents: Sequence[AgentUse], limits: AgentLimits, requests: int, *, start: float = 0.0) -> float | None:
    """When the last of so many requests can be sent if every agent sends as fast as allowed; None without agents.

    No request is sent in the first `start` seconds. The time of the answers is not counted.
    """
    if not agents:
        return None
    if requests <= 0:
        return 0.0
    # A slot is free again one window after its answer, and all slots of an agent never faster than their gaps.
    cycle = max(limits.window, limits.requests * limits.rest)
    runs = [run for agent in agents for run in _first_cycle(agent, limits, start)]
    early = 0.0
    late = max(run.start for run in runs) + cycle * (1 + requests // (len(agents) * limits.requests))
    while late - early > PRECISION_SECONDS:
        middle = (early + late) / 2
        if sum(run.sent_by(middle, limits.rest, cycle) for run in runs) >= requests:
            late = middle
        else:
            early = middle
    return late


def _first_cycle(agent: AgentUse, limits: AgentLimits, start: float) -> Iterator[_Run]:
    """The next request of each of the agent's slots: free slots first, then the others as their window ends."""
    moment = max(start, agent.rests, agent.ends[-1] + limits.rest if agent.ends else 0.0)
    free = limits.requests - len(agent.ends)
    if free:
        yield _Run(moment, free)
        moment += free * limits.rest
    for end in agent.ends:
        moment = max(moment, end + limits.window)
        yield _Run(moment, 1)
        moment += limits.rest
