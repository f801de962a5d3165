"""The stored bodies of one product are found by an index of their own."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index(
        "ix_product_raw_data_of_item",
        "product_raw_data",
        ["seller_id", "item_no", "raw_id"],
        postgresql_where=sa.text("raw_id > 0"),
    )


def downgrade() -> None:
    op.drop_index("ix_product_raw_data_of_item", "product_raw_data")
