"""One index for lists of all sellers' changes, and a record of which stored bodies were examined."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index(
        "ix_product_change_sets_newest",
        "product_change_sets",
        ["detected_at"],
        postgresql_where=sa.text("item_no > 0"),
    )
    op.create_table(
        "body_examinations",
        sa.Column("seller_id", sa.Text(), sa.ForeignKey("sellers.seller_id"), primary_key=True),
        *(
            sa.Column(name, sa.DateTime(timezone=True), nullable=False)
            for name in ("examined_at", "unchanged_before", "aged_before")
        ),
    )


def downgrade() -> None:
    op.drop_table("body_examinations")
    op.drop_index("ix_product_change_sets_newest", "product_change_sets")
