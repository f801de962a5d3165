"""User agents: aggregates to change, rows to list and choose from, and their sealed sessions."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, Row, text

from mustit_pipeline.domain.errors import NotFound
from mustit_pipeline.domain.filters import IdPrefix
from mustit_pipeline.domain.states import AgentStatus
from mustit_pipeline.domain.user_agent import AgentRules, UserAgent
from mustit_pipeline.domain.values import UserAgentId
from mustit_pipeline.foundation.id_prefixes import find_one


@dataclass(frozen=True, slots=True)
class AgentRow:
    """An agent for lists and for booking; without its session."""

    agent_id: UUID
    user_agent: str
    status: AgentStatus
    health: int
    issue_failures: int
    token_no: int
    token_expires_at: datetime | None
    suspended_until: datetime | None
    reason: str | None
    requests_today: int
    last_used_at: datetime | None
    revision: int


@dataclass(frozen=True, slots=True)
class SealedSession:
    """A session as it is stored."""

    token_no: int
    key_id: str
    sealed: bytes


_AGENT_COLUMNS = (
    "agent_id, user_agent, status, health, issue_failures, token_no, token_expires_at, suspended_until, reason,"
    " requests_today, last_used_at, revision"
)


def read_agents(connection: Connection) -> list[AgentRow]:
    """Every agent, in the order in which they were added."""
    rows = connection.execute(text(f"SELECT {_AGENT_COLUMNS} FROM user_agents ORDER BY created_at, user_agent"))
    return [_agent_row(row) for row in rows]


def count_agents(connection: Connection) -> int:
    """The number of agents in any state."""
    return connection.execute(text("SELECT count(*) FROM user_agents")).scalar_one()


def requests_today(connection: Connection, now: datetime) -> int:
    """How many requests all agents have sent on this day in Seoul."""
    query = text("""
        SELECT coalesce(sum(requests_today), 0) FROM user_agents
        WHERE requests_day = (CAST(:now AS timestamptz) AT TIME ZONE 'Asia/Seoul')::date
    """)
    return connection.execute(query, {"now": now}).scalar_one()


def read_agent(connection: Connection, agent_id: UUID) -> AgentRow:
    """One agent, or NotFound."""
    row = connection.execute(
        text(f"SELECT {_AGENT_COLUMNS} FROM user_agents WHERE agent_id = :id"), {"id": agent_id}
    ).one_or_none()
    if row is None:
        raise NotFound(
            "NOT_FOUND_USER_AGENT",
            korean=f"User-Agent를 찾을 수 없습니다: {agent_id}",
            english=f"There is no user agent {agent_id}",
        )
    return _agent_row(row)


def find(connection: Connection, wanted: IdPrefix) -> AgentRow:
    """The one agent whose id has this prefix."""
    row = find_one(
        connection,
        "user_agents",
        "agent_id",
        wanted,
        code="NOT_FOUND_USER_AGENT",
        korean="User-Agent를",
        thing="user agent",
        listing="mustit agents list",
    )
    return read_agent(connection, row.agent_id)


def lock_agents(connection: Connection, ids: Iterable[UUID], rules: AgentRules) -> list[UserAgent]:
    """The agents to change, with their rules, locked until the transaction ends."""
    rows = connection.execute(
        text(
            "SELECT agent_id, user_agent, status, health, suspended_until, token_expires_at, issue_failures"
            " FROM user_agents WHERE agent_id = ANY(:ids) ORDER BY agent_id FOR NO KEY UPDATE"
        ),
        {"ids": list(ids)},
    )
    return [
        UserAgent(
            id=UserAgentId(row.agent_id),
            user_agent=row.user_agent,
            status=AgentStatus(row.status),
            health=row.health,
            suspended_until=row.suspended_until,
            token_expires_at=row.token_expires_at,
            issue_failures=row.issue_failures,
            rules=rules,
        )
        for row in rows
    ]


def save_agents(connection: Connection, agents: Sequence[UserAgent], reason: str | None) -> None:
    """Store the aggregates; an agent without a token loses its session and gets a new token number."""
    if not agents:
        return
    connection.execute(
        text("""
            UPDATE user_agents SET status = :status, health = :health, suspended_until = :suspended_until,
                issue_failures = :issue_failures, token_expires_at = :token_expires_at,
                session = CASE WHEN CAST(:token_expires_at AS timestamptz) IS NOT NULL THEN session END,
                session_key_id = CASE WHEN CAST(:token_expires_at AS timestamptz) IS NOT NULL THEN session_key_id END,
                token_no = token_no + (session IS NOT NULL AND CAST(:token_expires_at AS timestamptz) IS NULL)::int,
                reason = CASE WHEN :status = 'AVAILABLE' THEN NULL WHEN status = :status THEN reason ELSE :reason END,
                revision = revision + 1, updated_at = clock_timestamp()
            WHERE agent_id = :agent_id
        """),
        [
            {
                "agent_id": agent.id.value,
                "status": agent.status.value,
                "health": agent.health,
                "suspended_until": agent.suspended_until,
                "issue_failures": agent.issue_failures,
                "token_expires_at": agent.token_expires_at,
                "reason": reason,
            }
            for agent in agents
        ],
    )


def record_429(connection: Connection, ids: Sequence[UUID], reason: str | None, at: datetime | None = None) -> None:
    """Store the judgement of these agents' last 429, new at `at` if given; a blocked agent keeps its reason."""
    if ids:
        connection.execute(
            text("""
                UPDATE user_agents SET reason = :reason,
                    throttled_at = coalesce(CAST(:at AS timestamptz), throttled_at)
                WHERE agent_id = ANY(:ids) AND status <> 'BLOCKED'
            """),
            {"ids": list(ids), "reason": reason, "at": at},
        )


def read_429s(connection: Connection) -> Sequence[Row[tuple[UUID, str, datetime]]]:
    """Each agent with a recorded 429: the agent, the reason and the time."""
    return connection.execute(
        text(
            "SELECT agent_id, reason, throttled_at FROM user_agents"
            " WHERE throttled_at IS NOT NULL AND reason IS NOT NULL"
        )
    ).all()


def insert_agents(connection: Connection, agents: Sequence[UserAgent]) -> int:
    """Add the agents whose text is new; returns their number."""
    if not agents:
        return 0
    return connection.execute(
        text("""
            WITH added AS (
                INSERT INTO user_agents (agent_id, user_agent, status, health)
                SELECT * FROM unnest(CAST(:ids AS uuid[]), CAST(:texts AS text[]), CAST(:statuses AS text[]),
                                     CAST(:healths AS int[]))
                ON CONFLICT (user_agent) DO NOTHING RETURNING agent_id
            ), limited AS (INSERT INTO agent_limits (agent_id) SELECT agent_id FROM added)
            SELECT count(*) FROM added
        """),
        {
            "ids": [agent.id.value for agent in agents],
            "texts": [agent.user_agent for agent in agents],
            "statuses": [agent.status.value for agent in agents],
            "healths": [agent.health for agent in agents],
        },
    ).scalar_one()


def read_session(connection: Connection, agent_id: UUID) -> SealedSession | None:
    """An agent's sealed session, if it has one."""
    row = connection.execute(
        text("SELECT token_no, session_key_id, session FROM user_agents WHERE agent_id = :id AND session IS NOT NULL"),
        {"id": agent_id},
    ).one_or_none()
    return None if row is None else SealedSession(row.token_no, row.session_key_id, bytes(row.session))


def read_sessions(connection: Connection) -> dict[UUID, SealedSession]:
    """The sealed sessions of the agents that may be used."""
    rows = connection.execute(
        text(
            "SELECT agent_id, token_no, session_key_id, session FROM user_agents"
            " WHERE session IS NOT NULL AND status = 'AVAILABLE'"
        )
    )
    return {row.agent_id: SealedSession(row.token_no, row.session_key_id, bytes(row.session)) for row in rows}


def drop_session(connection: Connection, agent_id: UUID, token_no: int | None = None) -> None:
    """Delete an agent's session, unless it has a newer one than `token_no`."""
    connection.execute(
        text("""
            UPDATE user_agents SET session = NULL, session_key_id = NULL, token_expires_at = NULL,
                token_no = token_no + 1, revision = revision + 1, updated_at = clock_timestamp()
            WHERE agent_id = :id AND session IS NOT NULL AND token_no = coalesce(CAST(:token_no AS int), token_no)
        """),
        {"id": agent_id, "token_no": token_no},
    )


def claim_issue(connection: Connection, agent_id: UUID, owner: UUID, seconds: float) -> int | None:
    """Claim the issue of this agent's next token; returns its number, None while another process has the claim."""
    return connection.execute(
        text("""
            UPDATE user_agents SET issue_owner = :owner,
                issue_until = clock_timestamp() + make_interval(secs => :seconds)
            WHERE agent_id = :id AND status = 'AVAILABLE'
              AND (issue_owner IS NULL OR issue_until < clock_timestamp())
            RETURNING token_no + 1
        """),
        {"id": agent_id, "owner": owner, "seconds": seconds},
    ).scalar_one_or_none()


def release_issue(connection: Connection, agent_id: UUID, owner: UUID) -> bool:
    """Release the claim; False if another process has taken it meanwhile."""
    return bool(
        connection.execute(
            text("UPDATE user_agents SET issue_owner = NULL WHERE agent_id = :id AND issue_owner = :owner"),
            {"id": agent_id, "owner": owner},
        ).rowcount
    )


def store_session(
    connection: Connection, agent_id: UUID, session: SealedSession, issued: UserAgent, *, resealed: bool = False
) -> bool:
    """Store a session in an agent's row; a newer or dropped one is never overwritten."""
    return bool(
        connection.execute(
            text("""
                UPDATE user_agents SET session = :sealed, session_key_id = :key_id, token_no = :token_no,
                    token_expires_at = :expires_at, issue_failures = :failures,
                    revision = revision + 1, updated_at = clock_timestamp()
                WHERE agent_id = :id AND token_no = :before AND (NOT :resealed OR session IS NOT NULL)
            """),
            {
                "id": agent_id,
                "sealed": session.sealed,
                "key_id": session.key_id,
                "token_no": session.token_no,
                "before": session.token_no if resealed else session.token_no - 1,
                "expires_at": issued.token_expires_at,
                "failures": issued.issue_failures,
                "resealed": resealed,
            },
        ).rowcount
    )


def _agent_row(row: Row[tuple[object, ...]]) -> AgentRow:
    values = dict(row._mapping)  # pyright: ignore[reportPrivateUsage]
    return AgentRow(**{**values, "status": AgentStatus(row.status)})  # pyright: ignore[reportArgumentType]
