"""No index that no statement needs, and none that invites a seller's statement to read those of all sellers.

Failed executions of all sellers are found by an index that only statements about all sellers can use. Tallies go by age
through their key, which has few subjects; API keys are few; a schedule's changes are looked up in their order, not by
their time.
"""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None

UNNEEDED = {
    "ix_tallies_hour": ("tallies", ["hour"]),
    "ix_api_keys_name": ("api_keys", ["name"]),
    "ix_scheduler_outbox_schedule_id_created_at": ("scheduler_outbox", ["schedule_id", "created_at"]),
}
BROKEN_OFF = "status IN ('FAILED', 'CANCELLED')"


def upgrade() -> None:
    for name, (table, _) in UNNEEDED.items():
        op.drop_index(name, table)
    _index_broken_off(f"{BROKEN_OFF} AND updated_at > '-infinity'")


def downgrade() -> None:
    _index_broken_off(BROKEN_OFF)
    for name, (table, columns) in UNNEEDED.items():
        op.create_index(name, table, columns)


def _index_broken_off(which: str) -> None:
    name, table = "ix_executions_broken_off", "crawling_schedule_executions"
    op.drop_index(name, table)
    op.create_index(name, table, ["status", "created_at", "execution_id"], postgresql_where=sa.text(which))
