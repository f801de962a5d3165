"""What each slice of a crawl came to, by its run."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "crawling_slices",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("execution_id", sa.Uuid(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("error", sa.Text()),
        sa.PrimaryKeyConstraint("run_id", name="pk_crawling_slices"),
        sa.ForeignKeyConstraint(
            ["execution_id"],
            ["crawling_schedule_executions.execution_id"],
            name="fk_crawling_slices_execution_id",
        ),
        sa.CheckConstraint(
            "outcome IN ('WORKED_THROUGH', 'HALTED', 'STOPPED', 'NEVER_STARTED', 'CRASHED', 'FAILED_FOR_GOOD')",
            name="outcome_known",
        ),
    )
    op.create_index("ix_crawling_slices_execution_id_ended_at", "crawling_slices", ["execution_id", "ended_at"])
    op.create_index("ix_crawling_slices_ended_at", "crawling_slices", ["ended_at"])


def downgrade() -> None:
    op.drop_table("crawling_slices")
