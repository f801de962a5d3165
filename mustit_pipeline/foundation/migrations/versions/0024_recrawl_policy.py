"""The recrawl policy: what it knows of products, sellers and the pool; light crawls."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

# Details and options are learnt apart.
KINDS = ("detail", "option")
EVIDENCE = (
    "changes",
    "hours",
    "expected_changes",
    "shown_changes",
    "quiet_expected",
    "quiet_changes",
    "false_signals",
)


def _number(name: str, default: str = "0") -> sa.Column[float]:
    return sa.Column(name, sa.Double(), nullable=False, server_default=default)


def _timestamp(name: str, *, nullable: bool = True) -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=nullable)


def upgrade() -> None:
    op.add_column("crawling_schedule_executions", sa.Column("kind", sa.Text(), nullable=False, server_default="DUE"))
    op.create_check_constraint("kind_known", "crawling_schedule_executions", "kind IN ('DUE', 'LIGHT')")
    op.create_table(
        "recrawl_products",
        sa.Column("item_no", sa.BigInteger(), nullable=False),
        *(
            column
            for kind in KINDS
            for column in (
                _timestamp(f"{kind}_fetched_at"),
                _number(f"{kind}_changes"),
                _number(f"{kind}_hours"),
                _number(f"{kind}_signals"),
                _timestamp(f"{kind}_failed_at"),
            )
        ),
        _timestamp("changed_at"),
        _number("boost", "1"),
        *(sa.Column(f"{kind}_reading", sa.SmallInteger(), nullable=False, server_default="0") for kind in KINDS),
        sa.Column("sold_out", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("seller_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("seller_id", "item_no", name="pk_recrawl_products"),
        sa.CheckConstraint("boost > 0", name="boost_positive"),
        postgresql_with={"fillfactor": "80"},
    )
    op.create_table(
        "recrawl_sellers",
        sa.Column("seller_id", sa.Text(), nullable=False),
        *(_number(f"{kind}_{name}") for kind in KINDS for name in EVIDENCE),
        _timestamp("learnt_at"),
        _number("boost", "1"),
        _timestamp("swept_at"),
        _number("look_hours", "1"),
        sa.Column("products", sa.Integer(), nullable=False, server_default="0"),
        *(
            sa.Column(f"{kind}_rates", postgresql.ARRAY(sa.Integer()), nullable=False, server_default=sa.text("'{}'"))
            for kind in KINDS
        ),
        _timestamp("oldest_at"),
        sa.PrimaryKeyConstraint("seller_id", name="pk_recrawl_sellers"),
        sa.ForeignKeyConstraint(["seller_id"], ["sellers.seller_id"], name="fk_recrawl_sellers_seller_id"),
        sa.CheckConstraint("boost > 0", name="boost_positive"),
        postgresql_with={"fillfactor": "50"},
    )
    op.create_table(
        "recrawl_pool",
        sa.Column("single", sa.Boolean(), nullable=False, server_default=sa.true()),
        _number("price"),
        _number("kept_age"),
        sa.Column("promise_broken", sa.Boolean(), nullable=False),
        *(_number(name) for name in ("freshness", "requests_per_hour", "needed_per_hour", "sources")),
        _timestamp("judged_at", nullable=False),
        _number("planned"),
        sa.PrimaryKeyConstraint("single", name="pk_recrawl_pool"),
        sa.CheckConstraint("single", name="single_row"),
    )


def downgrade() -> None:
    op.drop_table("recrawl_pool")
    op.drop_table("recrawl_sellers")
    op.drop_table("recrawl_products")
    op.drop_constraint("kind_known", "crawling_schedule_executions", type_="check")
    op.drop_column("crawling_schedule_executions", "kind")
