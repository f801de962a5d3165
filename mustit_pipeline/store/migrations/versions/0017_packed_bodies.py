"""Large bodies are packed before they are stored; those that are there stay as they are."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("product_raw_data", sa.Column("packed", sa.LargeBinary))
    # It is as small as it gets: PostgreSQL shall not try.
    op.execute("ALTER TABLE product_raw_data ALTER COLUMN packed SET STORAGE EXTERNAL")
    op.alter_column("product_raw_data", "body", nullable=True)
    op.create_check_constraint("one_body", "product_raw_data", "num_nonnulls(body, packed) = 1")


def downgrade() -> None:
    op.execute("DELETE FROM product_raw_data WHERE packed IS NOT NULL")
    op.drop_constraint("one_body", "product_raw_data", type_="check")
    op.alter_column("product_raw_data", "body", nullable=False)
    op.drop_column("product_raw_data", "packed")
