"""No index of open tasks: no statement needs it, and every task entered it three times.

One call of a product is found by its key; counting what an execution has open reads that execution's tasks.
"""

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None

NAME, TABLE = "ix_crawler_tasks_open_items", "crawler_tasks"


def upgrade() -> None:
    op.drop_index(NAME, TABLE)


def downgrade() -> None:
    op.create_index(
        NAME,
        TABLE,
        ["execution_id", "item_no"],
        postgresql_where=sa.text("status IN ('WAITING', 'PUBLISHED', 'IN_PROGRESS', 'RETRY')"),
    )
