"""Products of open deletion holds have no last sweep that saw them, unless a later crawl saw them."""

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
        UPDATE products p SET last_seen_execution_id = NULL
        FROM deletion_holds h, crawling_schedule_executions judged, crawling_schedule_executions seen
        WHERE h.status = 'OPEN' AND p.seller_id = h.seller_id AND p.item_no = ANY (h.item_nos)
          AND judged.execution_id = h.execution_id AND seen.execution_id = p.last_seen_execution_id
          AND seen.created_at < judged.created_at
    """)


def downgrade() -> None:
    """Nothing to undo: older code reads the rows as before."""
