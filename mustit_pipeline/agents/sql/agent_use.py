"""What each agent has used of its window, for whoever looks ahead."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text

from mustit_pipeline.agents.sql.agent_bookings import AgentLimits
from mustit_pipeline.domain.states import AgentStatus

# Older bookings than an agent has slots hold nothing up, so that no more than these are read.
_USABLE = text(f"""
    SELECT coalesce(extract(epoch FROM a.suspended_until - :now), 0)::float8 AS rests,
           ARRAY(SELECT extract(epoch FROM b.ends_at - :now)::float8 FROM agent_bookings b
                 WHERE b.agent_id = a.agent_id AND b.ends_at > :now - make_interval(secs => :window)
                 ORDER BY b.ends_at DESC LIMIT :requests) AS ends
    FROM user_agents a WHERE a.status <> '{AgentStatus.BLOCKED.value}'
""")


@dataclass(frozen=True, slots=True)
class AgentUse:
    """An agent, in seconds from now: until when it rests, and when its bookings of the window ended, oldest first.

    One in flight counts as ended now: that is when its answer comes at best.
    """

    rests: float
    ends: tuple[float, ...]


def usable(connection: Connection, limits: AgentLimits, now: datetime) -> list[AgentUse]:
    """Every agent that is AVAILABLE or will be by itself, by what is written."""
    rows = connection.execute(_USABLE, {"now": now, "window": limits.window, "requests": limits.requests})
    return [AgentUse(max(0.0, row.rests), tuple(min(0.0, end) for end in reversed(row.ends))) for row in rows]
