"""Failed and cancelled executions are found by an index of their own: they may lie far behind the newest."""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index(
        "ix_executions_broken_off",
        "crawling_schedule_executions",
        ["status", "created_at", "execution_id"],
        postgresql_where=sa.text("status IN ('FAILED', 'CANCELLED')"),
    )


def downgrade() -> None:
    op.drop_index("ix_executions_broken_off", "crawling_schedule_executions")
