"""How an execution's tasks stand: what is left, how its listing pages ended."""

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, text

from mustit_pipeline.crawling.sql.task_states import LEASED, OPEN
from mustit_pipeline.crawling.sql.tasks import TaskHome
from mustit_pipeline.domain.states import TASK, TaskType

# In the order of the index that holds open tasks alone: towards its end a crawl has few, among all that it had.
_OPEN_WORK = text(f"""
    SELECT count(*) AS open,
           extract(epoch FROM min(CASE WHEN status IN ({LEASED}) THEN lease_expires_at ELSE available_at END) - now())
               AS next_in
    FROM (SELECT status, lease_expires_at, available_at FROM crawler_tasks
          WHERE task_month = :task_month AND execution_id = :execution_id AND task_type = ANY(CAST(:types AS text[]))
            AND status IN ({OPEN})
          ORDER BY item_no OFFSET 0) AS open
""")

_PAGES = text(f"""
    SELECT count(*) FILTER (WHERE status IN ({OPEN})) AS open,
           count(*) FILTER (WHERE status = '{TASK.target("fail").value}') AS failed
    FROM crawler_tasks
    WHERE task_month = :task_month AND execution_id = :execution_id AND task_type = 'MINISHOP'
""")


_STANDINGS = text(f"""
    SELECT task_type, count(*) AS total,
           count(*) FILTER (WHERE status IN ({LEASED})) AS in_progress,
           count(*) FILTER (WHERE status IN ({OPEN}) AND status NOT IN ({LEASED})) AS waiting,
           count(*) FILTER (WHERE status = '{TASK.target("complete").value}') AS completed,
           count(*) FILTER (WHERE status = '{TASK.target("fail").value}') AS failed,
           count(*) FILTER (WHERE completed_at > now() - make_interval(secs => :recent)) AS recent,
           count(*) FILTER (WHERE completed_at > now() - make_interval(secs => :window)) AS in_window
    FROM crawler_tasks WHERE task_month = :task_month AND execution_id = :execution_id
    GROUP BY task_type ORDER BY task_type
""")


@dataclass(frozen=True, slots=True)
class TypeStanding:
    """How an execution's tasks of one type stand; `recent` ones have ended a moment ago, others within a window."""

    task_type: TaskType
    total: int
    in_progress: int
    waiting: int
    completed: int
    failed: int
    recent: int
    in_window: int


@dataclass(frozen=True, slots=True)
class OpenWork:
    """How many tasks have not ended, and in how many seconds the next one can be claimed or its lease ends."""

    open: int
    next_in: float


@dataclass(frozen=True, slots=True)
class PageOutcomes:
    """How an execution's listing pages stand."""

    open: int
    failed: int


def open_work(connection: Connection, home: TaskHome, types: Iterable[TaskType] = TaskType) -> OpenWork:
    """What is left of an execution's tasks of these types."""
    row = connection.execute(_OPEN_WORK, _of(home) | {"types": [kind.value for kind in types]}).one()
    return OpenWork(row.open, max(0.0, float(row.next_in or 0.0)))


def standings(
    connection: Connection, home: TaskHome, *, recent_seconds: float, window_seconds: float
) -> list[TypeStanding]:
    """How the tasks stand, by type."""
    rows = connection.execute(_STANDINGS, _of(home) | {"recent": recent_seconds, "window": window_seconds})
    return [
        TypeStanding(
            TaskType(row.task_type),
            row.total,
            row.in_progress,
            row.waiting,
            row.completed,
            row.failed,
            row.recent,
            row.in_window,
        )
        for row in rows
    ]


def page_outcomes(connection: Connection, home: TaskHome) -> PageOutcomes:
    """How many listing pages have not ended, and how many have failed."""
    row = connection.execute(_PAGES, _of(home)).one()
    return PageOutcomes(row.open, row.failed)


def _of(home: TaskHome) -> dict[str, object]:
    return {"task_month": home.task_month, "execution_id": home.execution_id}
