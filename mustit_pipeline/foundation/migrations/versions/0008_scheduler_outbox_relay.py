"""Schedule changes in the order of their commits, what replaced them, and one in flight per schedule."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Existing rows are numbered by creation time: their physical order differs.
    op.add_column("scheduler_outbox", sa.Column("seq", sa.BigInteger()))
    op.execute("""
        UPDATE scheduler_outbox o SET seq = made.seq
        FROM (SELECT outbox_id, row_number() OVER (ORDER BY created_at, outbox_id) AS seq FROM scheduler_outbox) made
        WHERE made.outbox_id = o.outbox_id
    """)
    op.execute("ALTER TABLE scheduler_outbox ALTER COLUMN seq SET NOT NULL")
    op.execute("ALTER TABLE scheduler_outbox ALTER COLUMN seq ADD GENERATED ALWAYS AS IDENTITY")
    op.execute("""
        SELECT setval(pg_get_serial_sequence('scheduler_outbox', 'seq'), max(seq)) FROM scheduler_outbox
        HAVING max(seq) IS NOT NULL
    """)
    op.add_column("scheduler_outbox", sa.Column("superseded_by", sa.Uuid()))
    op.create_index(
        "uq_scheduler_outbox_one_in_flight",
        "scheduler_outbox",
        ["schedule_id"],
        unique=True,
        postgresql_where=sa.text("status = 'SENDING'"),
    )
    op.create_index("ix_scheduler_outbox_schedule_id_seq", "scheduler_outbox", ["schedule_id", "seq"])


def downgrade() -> None:
    op.drop_index("ix_scheduler_outbox_schedule_id_seq", "scheduler_outbox")
    op.drop_index("uq_scheduler_outbox_one_in_flight", "scheduler_outbox")
    op.drop_column("scheduler_outbox", "superseded_by")
    op.drop_column("scheduler_outbox", "seq")
