"""The bookings of one agent are read in an order that the index of all bookings does not have.

Both indexes had the same order: with statistics of a time when few agents were in use, the planner read the bookings of
all agents to find those of one.
"""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None

NAME, TABLE = "ix_agent_bookings_window", "agent_bookings"


def upgrade() -> None:
    op.drop_index(NAME, TABLE)
    op.create_index(NAME, TABLE, ["agent_id", sa.text("ends_at DESC NULLS LAST")])


def downgrade() -> None:
    op.drop_index(NAME, TABLE)
    op.create_index(NAME, TABLE, ["agent_id", "ends_at"])
