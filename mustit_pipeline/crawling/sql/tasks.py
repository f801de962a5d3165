"""Crawl tasks: planned in bulk, each call once per execution, counted, and cancelled together."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from uuid import UUID

from sqlalchemy import Connection, text

from mustit_pipeline.domain.states import TASK, TaskStatus, TaskType
from mustit_pipeline.domain.task import CANCELLED
from mustit_pipeline.domain.values import RequestUrl
from mustit_pipeline.foundation.random_ids import time_ordered_uuids
from mustit_pipeline.foundation.tables import listed

PUBLISHED = TASK.target("publish").value
CLAIMABLE = listed(TASK.sources("start"))
LEASED = listed(TASK.sources("release"))
# For statements that look for leases by expiry: with a condition on the status the planner might scan all open tasks.
HAS_LEASE = "num_nulls(lease_owner) <> 1"
OPEN = listed(TASK.sources("cancel"))
# The planner prunes other months' partitions only with a condition on the column itself.
IN_MONTHS = "t.task_month = ANY(CAST(:all_months AS date[]))"


@dataclass(frozen=True, slots=True)
class TaskHome:
    """The execution that a task belongs to; its month places every row in one partition."""

    execution_id: UUID
    seller_id: str
    task_month: date


@dataclass(frozen=True, slots=True)
class PlannedTask:
    """A planned call, made once per execution however often it is planned."""

    url: RequestUrl
    priority: int
    item_no: int | None = None
    page_no: int | None = None
    probe: bool = False

    @property
    def key(self) -> str:
        """The canonical identity of the call inside its execution."""
        return f"{self.url.task_type}:{self.item_no if self.page_no is None else self.page_no}"


_ADD = text(f"""
    WITH added AS (
        INSERT INTO crawler_tasks (task_month, task_id, execution_id, seller_id, task_type, task_key, item_no, page_no,
                                   probe, request_url, status, priority, published_at)
        SELECT :task_month, p.id, :execution_id, :seller_id, p.task_type, p.task_key, p.item_no, p.page_no, p.probe,
               p.url, :status, p.priority, CASE WHEN :status = '{PUBLISHED}' THEN now() END
        FROM unnest(CAST(:ids AS uuid[]), CAST(:types AS text[]), CAST(:keys AS text[]), CAST(:items AS bigint[]),
                    CAST(:pages AS int[]), CAST(:probes AS boolean[]), CAST(:urls AS text[]),
                    CAST(:priorities AS smallint[]))
             WITH ORDINALITY AS p(id, task_type, task_key, item_no, page_no, probe, url, priority, position)
        ORDER BY p.position
        ON CONFLICT (task_month, execution_id, task_key) DO NOTHING
        RETURNING 1
    )
    UPDATE crawling_schedule_executions
    SET total_tasks = total_tasks + (SELECT count(*) FROM added), updated_at = now()
    WHERE execution_id = :execution_id
    RETURNING (SELECT count(*) FROM added) AS added
""")

_CANCEL = text(f"""
    WITH ended AS (
        UPDATE crawler_tasks SET status = :target, error_code = :reason, error_text = :reason, lease_owner = NULL,
               lease_expires_at = NULL, completed_at = now()
        WHERE task_month = :task_month AND execution_id = :execution_id AND status IN ({OPEN})
        RETURNING 1
    )
    UPDATE crawling_schedule_executions SET failed_tasks = failed_tasks + (SELECT count(*) FROM ended)
    WHERE execution_id = :execution_id
""")


def add(
    connection: Connection,
    home: TaskHome,
    planned: Sequence[PlannedTask],
    status: TaskStatus = TaskStatus.PUBLISHED,
) -> int:
    """Plan tasks and count them in their execution, without those planned before; returns the number of new ones.

    The table is the PostgreSQL queue, so that planning publishes; for another transport they are WAITING.
    """
    if not planned:
        return 0
    values = {
        "task_month": home.task_month,
        "execution_id": home.execution_id,
        "seller_id": home.seller_id,
        "status": status.value,
        "ids": time_ordered_uuids(len(planned)),
        "types": [task.url.task_type.value for task in planned],
        "keys": [task.key for task in planned],
        "items": [task.item_no for task in planned],
        "pages": [task.page_no for task in planned],
        "probes": [task.probe for task in planned],
        "urls": [task.url.value for task in planned],
        "priorities": [task.priority for task in planned],
    }
    return connection.execute(_ADD, values).scalar_one()


def cancel_open(connection: Connection, home: TaskHome) -> None:
    """End every open task of a cancelled execution."""
    values = {
        "task_month": home.task_month,
        "execution_id": home.execution_id,
        "target": TASK.target("cancel").value,
        "reason": CANCELLED,
    }
    connection.execute(_CANCEL, values)


_OF_TYPES = "task_month = :task_month AND execution_id = :execution_id AND task_type = ANY(CAST(:types AS text[]))"

# Each in the order of its index: near its end a crawl has few open tasks among all.
_OPEN_WORK = text(f"""
    SELECT count(*) AS open, extract(epoch FROM min(next_at) - now()) AS next_in
    FROM ((SELECT available_at AS next_at FROM crawler_tasks WHERE {_OF_TYPES} AND status IN ({CLAIMABLE})
           ORDER BY priority, seq OFFSET 0)
          UNION ALL
          (SELECT available_at FROM crawler_tasks WHERE {_OF_TYPES} AND status IN ({listed(TASK.sources("publish"))})
           ORDER BY priority, seq OFFSET 0)
          UNION ALL
          (SELECT lease_expires_at FROM crawler_tasks
           WHERE {_OF_TYPES} AND lease_expires_at IS NOT NULL AND {HAS_LEASE}
           ORDER BY lease_expires_at OFFSET 0)) AS open
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
    """An execution's tasks of one type by state; `recent` and `in_window` count those that ended lately."""

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
    """The number of open tasks, and the seconds until the next one can be claimed or its lease expires."""

    open: int
    next_in: float


@dataclass(frozen=True, slots=True)
class PageOutcomes:
    """The state of an execution's listing pages."""

    open: int
    failed: int


def open_work(connection: Connection, home: TaskHome, types: Iterable[TaskType] = TaskType) -> OpenWork:
    """The open tasks of these types of an execution."""
    row = connection.execute(_OPEN_WORK, _of(home) | {"types": [kind.value for kind in types]}).one()
    return OpenWork(row.open, max(0.0, float(row.next_in or 0.0)))


def standings(
    connection: Connection, home: TaskHome, *, recent_seconds: float, window_seconds: float
) -> list[TypeStanding]:
    """The tasks of an execution by type and state."""
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
