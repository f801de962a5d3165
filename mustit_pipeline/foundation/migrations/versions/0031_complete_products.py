"""The number of a seller's complete products, counted as a crawl is completed, and not by each day's metrics."""

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("crawling_schedule_executions", sa.Column("complete_count", sa.Integer()))


def downgrade() -> None:
    op.drop_column("crawling_schedule_executions", "complete_count")
