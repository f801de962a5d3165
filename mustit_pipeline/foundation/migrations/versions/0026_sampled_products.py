"""Sampled products are counted: how many were stale, by source and by the size of their seller."""

from alembic import op

revision = "0026"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _know("'CHANGE', 'DELIVERY', 'FETCH', 'SAMPLE'")


def downgrade() -> None:
    op.execute("DELETE FROM tallies WHERE subject = 'SAMPLE'")
    _know("'CHANGE', 'DELIVERY', 'FETCH'")


def _know(subjects: str) -> None:
    op.drop_constraint("subject_known", "tallies", type_="check")
    op.create_check_constraint("subject_known", "tallies", f"subject IN ({subjects})")
