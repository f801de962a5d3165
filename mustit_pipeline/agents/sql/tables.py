"""The tables of the user-agent pool: agents, their bookings, and the shared state of all workers."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Computed,
    Date,
    DateTime,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    Table,
    Text,
    Uuid,
    text,
)

from mustit_pipeline.domain.states import AgentStatus
from mustit_pipeline.foundation.tables import metadata, one_of, timestamp

user_agents = Table(
    "user_agents",
    metadata,
    Column("agent_id", Uuid, primary_key=True),
    Column("user_agent", Text, nullable=False, unique=True),
    Column("status", Text, nullable=False),
    Column("health", SmallInteger, nullable=False),
    Column("issue_failures", SmallInteger, nullable=False, server_default="0"),
    # AES-256-GCM, bound to this row and this token_no; the key id names its key.
    Column("session", LargeBinary),
    Column("session_key_id", Text),
    Column("token_no", Integer, nullable=False, server_default="0"),
    timestamp("token_expires_at", nullable=True),
    # The process that is requesting a token now, and the end of its claim.
    Column("issue_owner", Uuid),
    timestamp("issue_until", nullable=True),
    timestamp("suspended_until", nullable=True),
    timestamp("throttled_at", nullable=True),
    Column("reason", Text),
    Column("requests_day", Date),
    Column("requests_today", Integer, nullable=False, server_default="0"),
    timestamp("last_used_at", nullable=True),
    # Grows with every change that booking must know, so that a late publisher cannot overwrite newer data.
    Column("revision", BigInteger, nullable=False, server_default="0"),
    timestamp("created_at", default=True),
    timestamp("updated_at", default=True),
    one_of("status", AgentStatus),
    CheckConstraint("btrim(user_agent) <> ''", name="text_not_blank"),
    CheckConstraint("health BETWEEN 0 AND 100", name="health_in_range"),
    CheckConstraint("(session IS NULL) = (session_key_id IS NULL)", name="session_with_key"),
    CheckConstraint("(session IS NULL) = (token_expires_at IS NULL)", name="session_with_expiry"),
    CheckConstraint("(status = 'SUSPENDED') = (suspended_until IS NOT NULL)", name="rest_while_suspended"),
)

# Not in user_agents, because it changes with every request while PostgreSQL counts.
agent_limits = Table(
    "agent_limits",
    metadata,
    Column("agent_id", Uuid, ForeignKey("user_agents.agent_id"), primary_key=True),
    timestamp("next_free_at", default=True),
    timestamp("last_used_at", nullable=True),
)

agent_bookings = Table(
    "agent_bookings",
    metadata,
    Column("booking_id", Uuid, primary_key=True),
    Column("agent_id", Uuid, nullable=False),
    timestamp("booked_at"),
    # Until when its request may still reach the marketplace if its worker has died.
    timestamp("expires_at"),
    timestamp("answered_at", nullable=True),
    Column("throttled", Boolean, nullable=False, server_default=text("false")),
    Column(
        "ends_at",
        DateTime(timezone=True),
        Computed("COALESCE(answered_at, expires_at)", persisted=True),
        nullable=False,
    ),
    Index("ix_agent_bookings_window", "agent_id", text("ends_at DESC NULLS LAST")),
    Index("ix_agent_bookings_ends_at", "ends_at"),
)

pool_state = Table(
    "pool_state",
    metadata,
    Column("pool_id", SmallInteger, primary_key=True, autoincrement=False),
    # The counter: `redis`, `postgres`, or none while the workers leave Redis (`moving`).
    Column("counter", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False, server_default="0"),
    Column("redis_run_id", Text),
    timestamp("moved_at", nullable=True),
    timestamp("paused_until", nullable=True),
    Column("pause_seconds", Integer, nullable=False, server_default="0"),
    Column("pause_level", SmallInteger, nullable=False, server_default="0"),
    timestamp("breaker_open_until", nullable=True),
    timestamp("breaker_judge_after", nullable=True),
    Column("trial_owner", Uuid),
    timestamp("trial_until", nullable=True),
    CheckConstraint("pool_id = 1", name="one_row"),
    CheckConstraint("counter IN ('redis', 'moving', 'postgres')", name="counter_known"),
)

pool_workers = Table(
    "pool_workers",
    metadata,
    Column("worker_id", Uuid, primary_key=True),
    # The epoch up to which all of this worker's bookings are written.
    Column("epoch", BigInteger, nullable=False),
    Column("reaches_redis", Boolean, nullable=False),
    timestamp("seen_at", default=True),
)
