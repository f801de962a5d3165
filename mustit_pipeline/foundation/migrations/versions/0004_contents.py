"""A body's canonical content as text and hash beside it: no body is parsed twice, an unchanged one not at all."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("product_raw_data", sa.Column("content", sa.Text()))
    op.add_column("product_raw_data", sa.Column("content_hash", sa.Text()))


def downgrade() -> None:
    op.drop_column("product_raw_data", "content_hash")
    op.drop_column("product_raw_data", "content")
