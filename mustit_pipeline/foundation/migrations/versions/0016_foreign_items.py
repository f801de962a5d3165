"""Listed items that are another seller's: known as such until their listing entry changes, and counted."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("products", sa.Column("foreign_at", sa.DateTime(timezone=True)))
    op.create_index(
        "ix_products_foreign", "products", ["seller_id"], postgresql_where=sa.text("foreign_at IS NOT NULL")
    )
    op.add_column(
        "crawling_schedule_executions", sa.Column("foreign_items", sa.Integer(), nullable=False, server_default="0")
    )


def downgrade() -> None:
    op.drop_column("crawling_schedule_executions", "foreign_items")
    op.drop_index("ix_products_foreign", table_name="products")
    op.drop_column("products", "foreign_at")
