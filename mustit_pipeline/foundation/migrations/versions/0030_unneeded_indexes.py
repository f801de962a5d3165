"""No index that no statement needs.

Tallies go by age through their key, which has few subjects; API keys are few; a schedule's changes are looked up in
their order, not by their time.
"""

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


def upgrade() -> None:
    for name, (table, _) in UNNEEDED.items():
        op.drop_index(name, table)


def downgrade() -> None:
    for name, (table, columns) in UNNEEDED.items():
        op.create_index(name, table, columns)
