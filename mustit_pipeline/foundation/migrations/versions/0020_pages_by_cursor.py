"""Pages that begin where the last one ended: products by number, and changes and events in one order."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

BY_TIME, OF_ALL_SELLERS = sa.text("version > 0"), sa.text("item_no > 0")
BY_NUMBER = sa.text("created_at > '-infinity'")
CHANGES, OUTBOX = "product_change_sets", "product_outbox"
DETECTED, NEWEST, STATES = f"ix_{CHANGES}_detected", f"ix_{CHANGES}_newest", f"ix_{OUTBOX}_states"


def upgrade() -> None:
    op.drop_index("ix_products_item_no", "products")
    op.create_index("ix_products_by_number", "products", ["item_no", "seller_id"], postgresql_where=BY_NUMBER)
    _order_by("change_set_id", "outbox_id")


def downgrade() -> None:
    op.drop_index("ix_products_by_number", "products")
    op.create_index("ix_products_item_no", "products", ["item_no"], postgresql_using="hash")
    _order_by(None, None)


def _order_by(change_set: str | None, event: str | None) -> None:
    """Make the indexes by time anew, with or without an id behind the time."""
    for name, table in ((DETECTED, CHANGES), (NEWEST, CHANGES), (STATES, OUTBOX)):
        op.drop_index(name, table)
    ids = [] if change_set is None else [change_set]
    op.create_index(DETECTED, CHANGES, ["seller_id", "detected_at", *ids], postgresql_where=BY_TIME)
    op.create_index(NEWEST, CHANGES, ["detected_at", *ids], postgresql_where=OF_ALL_SELLERS)
    events = [] if event is None else [event]
    op.create_index(STATES, OUTBOX, ["status", "created_at", *events], postgresql_where=BY_TIME)
