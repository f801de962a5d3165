"""The user-agent pool."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def _time(name: str, *, nullable: bool = True, default: bool = False) -> sa.Column[object]:
    server_default = sa.func.now() if default else None
    return sa.Column(name, sa.DateTime(timezone=True), nullable=nullable, server_default=server_default)


def upgrade() -> None:
    op.create_table(
        "user_agents",
        sa.Column("agent_id", sa.Uuid(), primary_key=True),
        sa.Column("user_agent", sa.Text(), nullable=False, unique=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("health", sa.SmallInteger(), nullable=False),
        sa.Column("issue_failures", sa.SmallInteger(), nullable=False, server_default="0"),
        sa.Column("session", sa.LargeBinary()),
        sa.Column("session_key_id", sa.Text()),
        sa.Column("token_no", sa.Integer(), nullable=False, server_default="0"),
        _time("token_expires_at"),
        sa.Column("issue_owner", sa.Uuid()),
        _time("issue_until"),
        _time("suspended_until"),
        _time("throttled_at"),
        sa.Column("reason", sa.Text()),
        sa.Column("requests_day", sa.Date()),
        sa.Column("requests_today", sa.Integer(), nullable=False, server_default="0"),
        _time("last_used_at"),
        sa.Column("revision", sa.BigInteger(), nullable=False, server_default="0"),
        _time("created_at", nullable=False, default=True),
        _time("updated_at", nullable=False, default=True),
        sa.CheckConstraint("status IN ('AVAILABLE', 'SUSPENDED', 'BLOCKED')", name="status_known"),
        sa.CheckConstraint("btrim(user_agent) <> ''", name="text_not_blank"),
        sa.CheckConstraint("health BETWEEN 0 AND 100", name="health_in_range"),
        sa.CheckConstraint("(session IS NULL) = (session_key_id IS NULL)", name="session_with_key"),
        sa.CheckConstraint("(session IS NULL) = (token_expires_at IS NULL)", name="session_with_expiry"),
        sa.CheckConstraint("(status = 'SUSPENDED') = (suspended_until IS NOT NULL)", name="rest_while_suspended"),
    )
    op.create_table(
        "agent_limits",
        sa.Column("agent_id", sa.Uuid(), sa.ForeignKey("user_agents.agent_id"), primary_key=True),
        _time("next_free_at", nullable=False, default=True),
        _time("last_used_at"),
    )
    op.create_table(
        "agent_bookings",
        sa.Column("booking_id", sa.Uuid(), primary_key=True),
        sa.Column("agent_id", sa.Uuid(), nullable=False),
        _time("booked_at", nullable=False),
        _time("expires_at", nullable=False),
        _time("answered_at"),
        sa.Column("throttled", sa.Boolean(), nullable=False, server_default=sa.text("false")),
        sa.Column(
            "ends_at",
            sa.DateTime(timezone=True),
            sa.Computed("COALESCE(answered_at, expires_at)", persisted=True),
            nullable=False,
        ),
    )
    op.create_index("ix_agent_bookings_window", "agent_bookings", ["agent_id", "ends_at"])
    op.create_index("ix_agent_bookings_ends_at", "agent_bookings", ["ends_at"])
    pool_state = op.create_table(
        "pool_state",
        sa.Column("pool_id", sa.SmallInteger(), primary_key=True, autoincrement=False),
        sa.Column("counter", sa.Text(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("redis_run_id", sa.Text()),
        _time("moved_at"),
        _time("paused_until"),
        sa.Column("pause_seconds", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("pause_level", sa.SmallInteger(), nullable=False, server_default="0"),
        _time("breaker_open_until"),
        _time("breaker_judge_after"),
        sa.Column("trial_owner", sa.Uuid()),
        _time("trial_until"),
        sa.CheckConstraint("pool_id = 1", name="one_row"),
        sa.CheckConstraint("counter IN ('redis', 'moving', 'postgres')", name="counter_known"),
    )
    op.bulk_insert(pool_state, [{"pool_id": 1, "counter": "postgres"}])
    op.create_table(
        "pool_workers",
        sa.Column("worker_id", sa.Uuid(), primary_key=True),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("reaches_redis", sa.Boolean(), nullable=False),
        _time("seen_at", nullable=False, default=True),
    )


def downgrade() -> None:
    for table in ("pool_workers", "pool_state", "agent_bookings", "agent_limits", "user_agents"):
        op.drop_table(table)
