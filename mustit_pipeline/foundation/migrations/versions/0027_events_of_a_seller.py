"""The events of one seller have an order of their own: a page of them does not sort them all."""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None

NAME, TABLE = "ix_product_outbox_of_seller", "product_outbox"


def upgrade() -> None:
    columns = [sa.text("(seller_id || '')"), "status", "created_at", "outbox_id"]
    op.create_index(NAME, TABLE, columns, postgresql_where=sa.text("item_no > 0"))


def downgrade() -> None:
    op.drop_index(NAME, TABLE)
