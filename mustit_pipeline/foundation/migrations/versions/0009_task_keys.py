"""A task's call is unique by an index that begins with its execution, not with its month."""

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

BY_MONTH = "uq_crawler_tasks_task_month_execution_id_task_key"
BY_EXECUTION = "uq_crawler_tasks_execution_id_task_key_task_month"


def upgrade() -> None:
    # While a partition has no statistics, the planner takes the month alone for as selective as a task's key, and reads
    # every task of the month. Dropping first takes the strongest lock at once: no call can be written twice in between.
    op.drop_constraint(BY_MONTH, "crawler_tasks")
    op.create_unique_constraint(BY_EXECUTION, "crawler_tasks", ["execution_id", "task_key", "task_month"])


def downgrade() -> None:
    op.drop_constraint(BY_EXECUTION, "crawler_tasks")
    op.create_unique_constraint(BY_MONTH, "crawler_tasks", ["task_month", "execution_id", "task_key"])
