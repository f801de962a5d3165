"""Pages that begin where the last one ended: changes and events have one order."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

BY_TIME, OF_ALL_SELLERS = sa.text("version > 0"), sa.text("item_no > 0")
SELLER = sa.text("(seller_id || '')")
CHANGES, OUTBOX = "product_change_sets", "product_outbox"
DETECTED, NEWEST, STATES = f"ix_{CHANGES}_detected", f"ix_{CHANGES}_newest", f"ix_{OUTBOX}_states"


def upgrade() -> None:
    _drop()
    op.create_index(DETECTED, CHANGES, [SELLER, "detected_at", "change_set_id"])
    op.create_index(NEWEST, CHANGES, ["detected_at", "change_set_id"], postgresql_where=OF_ALL_SELLERS)
    op.create_index(STATES, OUTBOX, ["status", "created_at", "outbox_id"], postgresql_where=BY_TIME)


def downgrade() -> None:
    _drop()
    op.create_index(DETECTED, CHANGES, ["seller_id", "detected_at"], postgresql_where=BY_TIME)
    op.create_index(NEWEST, CHANGES, ["detected_at"], postgresql_where=OF_ALL_SELLERS)
    op.create_index(STATES, OUTBOX, ["status", "created_at"], postgresql_where=BY_TIME)


def _drop() -> None:
    for name, table in ((DETECTED, CHANGES), (NEWEST, CHANGES), (STATES, OUTBOX)):
        op.drop_index(name, table)
