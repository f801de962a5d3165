"""Crawl tasks: planned in bulk, each call once per execution, and ended together when that is cancelled."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from uuid import UUID

from sqlalchemy import Connection, text

from mustit_pipeline.crawling.sql.task_states import OPEN
from mustit_pipeline.domain.states import TASK
from mustit_pipeline.domain.task import CANCELLED
from mustit_pipeline.domain.values import RequestUrl
from mustit_pipeline.foundation.random_ids import time_ordered_uuids


@dataclass(frozen=True, slots=True)
class TaskHome:
    """The execution that a task belongs to; its month places every row in one partition."""

    execution_id: UUID
    seller_id: str
    task_month: date


@dataclass(frozen=True, slots=True)
class PlannedTask:
    """A call to make, once per execution however often it is planned."""

    url: RequestUrl
    priority: int
    item_no: int | None = None
    page_no: int | None = None
    probe: bool = False

    @property
    def key(self) -> str:
        """The canonical identity of the call inside its execution."""
        return f"{self.url.task_type}:{self.item_no if self.page_no is None else self.page_no}"


_ADD = text("""
    WITH added AS (
        INSERT INTO crawler_tasks (task_month, task_id, execution_id, seller_id, task_type, task_key, item_no, page_no,
                                   probe, request_url, status, priority, published_at)
        SELECT :task_month, p.id, :execution_id, :seller_id, p.task_type, p.task_key, p.item_no, p.page_no, p.probe,
               p.url, :published, p.priority, now()
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


def add(connection: Connection, home: TaskHome, planned: Sequence[PlannedTask]) -> int:
    """Plan tasks and count them in their execution; those planned before are left alone. Returns how many are new."""
    if not planned:
        return 0
    values = {
        "task_month": home.task_month,
        "execution_id": home.execution_id,
        "seller_id": home.seller_id,
        "published": TASK.target("publish").value,
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
