"""Messages that asked for crawls: which have come, and which are parked."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "trigger_messages",
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("message_id", sa.Text(), nullable=False),
        sa.Column("execution_id", sa.Uuid()),
        sa.Column("reason", sa.Text()),
        sa.Column("body", sa.Text()),
        sa.Column("received_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("dismissed_at", sa.DateTime(timezone=True)),
        sa.PrimaryKeyConstraint("queue", "message_id", name=op.f("pk_trigger_messages")),
        sa.ForeignKeyConstraint(
            ["execution_id"],
            ["crawling_schedule_executions.execution_id"],
            name=op.f("fk_trigger_messages_execution_id"),
        ),
        sa.CheckConstraint(
            "reason IN ('TOO_LARGE', 'NOT_JSON', 'NO_SELLER_ID', 'BAD_SELLER_ID', 'UNKNOWN_SELLER', 'INACTIVE_SELLER')",
            name=op.f("ck_trigger_messages_reason_known"),
        ),
        sa.CheckConstraint("num_nonnulls(execution_id, reason) <= 1", name=op.f("ck_trigger_messages_taken_or_parked")),
        sa.CheckConstraint("(reason IS NULL) = (body IS NULL)", name=op.f("ck_trigger_messages_body_while_parked")),
        sa.CheckConstraint(
            "dismissed_at IS NULL OR reason IS NOT NULL", name=op.f("ck_trigger_messages_dismissed_if_parked")
        ),
    )
    op.create_index("ix_trigger_messages_received_at", "trigger_messages", ["received_at"])
    op.create_index(
        "ix_trigger_messages_parked",
        "trigger_messages",
        ["received_at"],
        postgresql_where=sa.text("reason IS NOT NULL AND dismissed_at IS NULL"),
    )


def downgrade() -> None:
    op.drop_table("trigger_messages")
