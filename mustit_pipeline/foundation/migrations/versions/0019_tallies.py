"""Counts and durations of fetches, changes and deliveries; and what a sweep has seen."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "tallies",
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("hour", sa.DateTime(timezone=True), nullable=False),
        sa.Column("labels", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("slot", sa.Integer(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("seconds", sa.Double, nullable=False),
        sa.Column("buckets", postgresql.ARRAY(sa.BigInteger()), nullable=False),
        sa.PrimaryKeyConstraint("subject", "hour", "labels", "slot", name="pk_tallies"),
        sa.CheckConstraint("subject IN ('CHANGE', 'DELIVERY', 'FETCH')", name="subject_known"),
    )
    op.create_index("ix_tallies_hour", "tallies", ["hour"])
    op.add_column("crawling_schedule_executions", sa.Column("seen_count", sa.Integer()))


def downgrade() -> None:
    op.drop_column("crawling_schedule_executions", "seen_count")
    op.drop_table("tallies")
