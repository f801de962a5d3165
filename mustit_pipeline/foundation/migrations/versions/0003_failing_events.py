"""Since when an event fails, for its rule, and so that it no longer blocks others."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("product_outbox", sa.Column("failing_since", sa.DateTime(timezone=True)))
    op.execute("UPDATE product_outbox SET failing_since = now() WHERE last_error IS NOT NULL")
    op.drop_index("ix_product_outbox_due", "product_outbox")
    op.create_index(
        "ix_product_outbox_due_fresh",
        "product_outbox",
        ["next_attempt_at"],
        postgresql_where=sa.text("status = 'WAITING' AND failing_since IS NULL"),
    )
    op.create_index(
        "ix_product_outbox_due_failing",
        "product_outbox",
        ["next_attempt_at"],
        postgresql_where=sa.text("status = 'WAITING' AND failing_since IS NOT NULL"),
    )
    op.create_index(
        "ix_product_outbox_delivered",
        "product_outbox",
        ["completed_at"],
        postgresql_where=sa.text("status = 'COMPLETED' AND superseded_by IS NULL"),
    )


def downgrade() -> None:
    for name in ("ix_product_outbox_delivered", "ix_product_outbox_due_failing", "ix_product_outbox_due_fresh"):
        op.drop_index(name, "product_outbox")
    op.drop_column("product_outbox", "failing_since")
    op.create_index(
        "ix_product_outbox_due",
        "product_outbox",
        ["next_attempt_at"],
        postgresql_where=sa.text("status = 'WAITING'"),
    )
