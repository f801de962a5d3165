"""The month partitions of the task table: created ahead, filled from the default partition, and dropped as a whole."""

from dataclasses import dataclass
from datetime import date

from sqlalchemy import Connection, text

from mustit_pipeline.domain.execution import OPEN_STATES
from mustit_pipeline.domain.states import EXECUTION
from mustit_pipeline.foundation import advisory_locks
from mustit_pipeline.foundation.advisory_locks import Only

# Workers queue behind the locks of these statements. While a long transaction blocks them, they give up until the next
# night.
LOCK_TIMEOUT = "5s"
# The settings of a queue; migration 0013 set the same for the earlier partitions.
SETTINGS = (
    "autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_analyze_scale_factor = 0.02"
)
_OPEN = ", ".join(f"'{state.value}'" for state in sorted(OPEN_STATES))
_RESUMABLE = ", ".join(f"'{state.value}'" for state in sorted(EXECUTION.sources("resume") - OPEN_STATES))

_PARTITIONS = text("""
    SELECT c.relname AS name, greatest(c.reltuples, 0) AS rows, pg_total_relation_size(c.oid) AS bytes
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = CAST('crawler_tasks' AS regclass) AND c.relname ~ '^crawler_tasks_[0-9]{4}_[0-9]{2}$'
    ORDER BY c.relname
""")

_OPEN_EXECUTIONS = text(f"""
    SELECT count(*) FROM crawling_schedule_executions WHERE status IN ({_OPEN}) AND task_month = :month
""")

# Locks executions that an operator could still resume; their open tasks end with the partition.
_END_LEFTOVERS = text(f"""
    WITH left_open AS (
        SELECT execution_id FROM crawling_schedule_executions
        WHERE status IN ({_RESUMABLE}) AND task_month = :month AND completed_tasks + failed_tasks < total_tasks
        ORDER BY execution_id FOR NO KEY UPDATE
    )
    UPDATE crawling_schedule_executions e SET failed_tasks = e.total_tasks - e.completed_tasks, updated_at = now()
    FROM left_open o WHERE e.execution_id = o.execution_id
""")


@dataclass(frozen=True, slots=True)
class TaskMonth:
    """A month's partition, with the planner's estimate of its rows."""

    month: date
    rows: int
    bytes: int


def following(month: date) -> date:
    """The first day of the month after."""
    return date(month.year + month.month // 12, month.month % 12 + 1, 1)


def ensure_month(connection: Connection, month: date) -> bool:
    """Create the partition of a month's tasks; safe for two callers at once. True if it did not exist."""
    name = _name(month)
    if connection.execute(text("SELECT to_regclass(:name)"), {"name": name}).scalar_one() is not None:
        return False
    advisory_locks.lock(connection, Only.TASK_PARTITIONS)
    connection.exec_driver_sql(
        f"CREATE TABLE IF NOT EXISTS {name} PARTITION OF crawler_tasks"
        f" FOR VALUES FROM ('{month}') TO ('{following(month)}') WITH ({SETTINGS})"
    )
    return True


def be_brief(connection: Connection) -> None:
    """Set a short lock timeout for this transaction."""
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")


def partitions(connection: Connection) -> list[TaskMonth]:
    """Every month that has a partition, oldest first."""
    return [
        TaskMonth(date(int(row.name[-7:-3]), int(row.name[-2:]), 1), int(row.rows), row.bytes)
        for row in connection.execute(_PARTITIONS)
    ]


def open_executions(connection: Connection, month: date) -> int:
    """The number of open executions with tasks in a month."""
    return connection.execute(_OPEN_EXECUTIONS, {"month": month}).scalar_one()


def drop_month(connection: Connection, month: date) -> bool:
    """Drop a month's partition; returns False and does nothing while an execution of that month is open."""
    be_brief(connection)
    connection.execute(_END_LEFTOVERS, {"month": month})
    if open_executions(connection, month):
        return False
    connection.exec_driver_sql(f"DROP TABLE {_name(month)}")
    return True


def months_in_default(connection: Connection) -> list[date]:
    """Months that have rows in the default partition."""
    return list(
        connection.execute(text("SELECT DISTINCT task_month FROM crawler_tasks_default ORDER BY task_month")).scalars()
    )


def move_from_default(connection: Connection, month: date) -> int:
    """Move a month's rows from the default partition to its own; returns their number."""
    name = _name(month)
    be_brief(connection)
    advisory_locks.lock(connection, Only.TASK_PARTITIONS)
    connection.exec_driver_sql("LOCK TABLE crawler_tasks IN ACCESS EXCLUSIVE MODE")
    connection.exec_driver_sql(f"CREATE TABLE {name} (LIKE crawler_tasks INCLUDING ALL) WITH ({SETTINGS})")
    moved = connection.execute(
        text(f"""
            WITH moved AS (DELETE FROM crawler_tasks_default WHERE task_month = :month RETURNING *)
            INSERT INTO {name} SELECT * FROM moved
        """),
        {"month": month},
    ).rowcount
    connection.exec_driver_sql(
        f"ALTER TABLE crawler_tasks ATTACH PARTITION {name} FOR VALUES FROM ('{month}') TO ('{following(month)}')"
    )
    return moved


def _name(month: date) -> str:
    return f"crawler_tasks_{month:%Y_%m}"
