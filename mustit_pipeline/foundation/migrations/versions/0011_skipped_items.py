"""How many items of an execution's listing pages could not be read."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "crawling_schedule_executions", sa.Column("skipped_items", sa.Integer(), nullable=False, server_default="0")
    )


def downgrade() -> None:
    op.drop_column("crawling_schedule_executions", "skipped_items")
