"""Tasks that wait until SQS has accepted their message, most urgent first."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index(
        "ix_crawler_tasks_waiting",
        "crawler_tasks",
        ["execution_id", "priority", "seq"],
        postgresql_where=sa.text("status = 'WAITING'"),
    )


def downgrade() -> None:
    op.drop_index("ix_crawler_tasks_waiting", table_name="crawler_tasks")
