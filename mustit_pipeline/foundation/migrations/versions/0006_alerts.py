"""Alerts; changes that are held back; products that are compared with the marketplace; what is left incomplete."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def _timestamp(name: str, *, nullable: bool = False, default: bool = False) -> sa.Column[object]:
    made = sa.func.now() if default else None
    return sa.Column(name, sa.DateTime(timezone=True), nullable=nullable, server_default=made)


def _id(name: str) -> sa.Column[object]:
    return sa.Column(name, sa.Uuid(), primary_key=True, server_default=sa.func.gen_random_uuid())


def upgrade() -> None:
    op.create_table(
        "change_holds",
        _id("hold_id"),
        sa.Column("seller_id", sa.Text(), sa.ForeignKey("sellers.seller_id"), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("jumped", sa.Integer(), nullable=False),
        sa.Column("emptied", sa.Integer(), nullable=False),
        sa.Column("suspicious", sa.Integer(), nullable=False),
        sa.Column("looked_at", sa.Integer(), nullable=False),
        sa.Column("examples", postgresql.ARRAY(sa.BigInteger()), nullable=False),
        _timestamp("opened_at", default=True),
        _timestamp("closed_at", nullable=True),
        sa.CheckConstraint("status IN ('OPEN', 'RELEASED', 'CLOSED')", name="status_known"),
    )
    op.create_index(
        "uq_change_holds_one_open_per_seller",
        "change_holds",
        ["seller_id"],
        unique=True,
        postgresql_where=sa.text("status = 'OPEN'"),
    )
    op.create_table(
        "truth_samples",
        _id("sample_id"),
        sa.Column("seller_id", sa.Text(), nullable=False),
        sa.Column("item_no", sa.BigInteger(), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("said_hash", sa.Text()),
        sa.Column("difference", sa.Text()),
        _timestamp("sampled_at"),
        _timestamp("judged_at", nullable=True),
        sa.CheckConstraint("verdict IN ('EQUAL', 'OPEN', 'EXPLAINED', 'WRONG')", name="verdict_known"),
        sa.CheckConstraint("(verdict = 'OPEN') = (judged_at IS NULL)", name="judged_unless_open"),
    )
    op.create_index(
        "uq_truth_samples_one_open_per_product",
        "truth_samples",
        ["seller_id", "item_no"],
        unique=True,
        postgresql_where=sa.text("verdict = 'OPEN'"),
    )
    op.create_index("ix_truth_samples_judged_at", "truth_samples", ["judged_at"])
    op.create_table(
        "alerts",
        _id("alert_id"),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        _timestamp("opened_at"),
        _timestamp("last_seen_at"),
        _timestamp("ended_at", nullable=True),
        _timestamp("notice_at", nullable=True),
        sa.Column("reached", postgresql.ARRAY(sa.Text()), nullable=False, server_default=sa.text("'{}'")),
        sa.Column("notices", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("last_error", sa.Text()),
        sa.Column("lease_owner", sa.Text()),
        sa.Column("lease_no", sa.Integer(), nullable=False, server_default="0"),
        _timestamp("lease_expires_at", nullable=True),
        sa.CheckConstraint("btrim(subject) <> ''", name="subject_not_blank"),
        sa.CheckConstraint("(lease_owner IS NULL) = (lease_expires_at IS NULL)", name="lease_with_end"),
    )
    op.create_index(
        "uq_alerts_one_open_per_subject",
        "alerts",
        ["subject"],
        unique=True,
        postgresql_where=sa.text("ended_at IS NULL"),
    )
    op.create_index("ix_alerts_due", "alerts", ["notice_at"], postgresql_where=sa.text("notice_at IS NOT NULL"))
    op.create_index("ix_alerts_subject_last_seen_at", "alerts", ["subject", "last_seen_at"])
    op.create_index("ix_alerts_opened_at", "alerts", ["opened_at"])
    op.create_index(
        "ix_products_incomplete",
        "products",
        ["seller_id", "created_at"],
        postgresql_where=sa.text("NOT complete AND deleted_at IS NULL"),
    )


def downgrade() -> None:
    op.drop_index("ix_products_incomplete", "products")
    for table in ("alerts", "truth_samples", "change_holds"):
        op.drop_table(table)
