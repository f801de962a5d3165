"""Ids of products and events that follow time: new rows stay on a few pages of their indexes, however large these are.

An outbox row's own id stays random, because people find it by its first digits.
"""

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None

IDS = {"products": "product_id", "product_outbox": "event_id"}


def upgrade() -> None:
    for table, column in IDS.items():
        op.alter_column(table, column, server_default=sa.text("uuidv7()"))


def downgrade() -> None:
    for table, column in IDS.items():
        op.alter_column(table, column, server_default=sa.text("gen_random_uuid()"))
