"""Fault attribution of the product server's answers: the row, the server, or our credential."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("product_outbox", sa.Column("doubted_since", sa.DateTime(timezone=True)))
    op.add_column(
        "circuit_breakers",
        sa.Column("failed_rows", postgresql.ARRAY(sa.Uuid()), nullable=False, server_default="{}"),
    )
    op.add_column("circuit_breakers", sa.Column("answered_at", sa.DateTime(timezone=True)))
    op.add_column("circuit_breakers", sa.Column("refused_credential", sa.Text()))


def downgrade() -> None:
    for name in ("refused_credential", "answered_at", "failed_rows"):
        op.drop_column("circuit_breakers", name)
    op.drop_column("product_outbox", "doubted_since")
