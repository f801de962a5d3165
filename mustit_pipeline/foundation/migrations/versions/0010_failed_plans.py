"""How many crawls of a seller in a row could not be planned."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("crawling_schedules", sa.Column("failed_plans", sa.Integer(), nullable=False, server_default="0"))


def downgrade() -> None:
    op.drop_column("crawling_schedules", "failed_plans")
