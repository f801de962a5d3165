"""Fields of the marketplace's bodies that changed shape, and how many of them a crawl met."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "schema_drift",
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("observed", sa.Text(), nullable=False),
        sa.Column("expected", sa.Text(), nullable=False),
        sa.Column("sample", sa.Text(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("seller_id", sa.Text(), nullable=False),
        sa.Column("item_no", sa.BigInteger()),
        sa.Column("first_seen_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.Column("last_seen_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.Column("accepted_at", sa.DateTime(timezone=True)),
        sa.PrimaryKeyConstraint("path", "kind", "observed"),
        sa.CheckConstraint("kind IN ('NEW', 'MISSING', 'RETYPED')", name="kind_known"),
    )
    op.add_column(
        "crawling_schedule_executions",
        sa.Column("drift", postgresql.ARRAY(sa.Text()), nullable=False, server_default=sa.text("'{}'")),
    )


def downgrade() -> None:
    op.drop_column("crawling_schedule_executions", "drift")
    op.drop_table("schema_drift")
