"""Tasks and their messages in SQS: which are to be sent, which have been, and which have no message any more."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, text

from mustit_pipeline.crawling.sql.tables import WORKED_ON
from mustit_pipeline.crawling.sql.tasks import PUBLISHED
from mustit_pipeline.domain.states import TASK, ExecutionStatus, TaskStatus, TaskType
from mustit_pipeline.domain.task import CANCELLED, used_up_attempts
from mustit_pipeline.foundation.tables import listed

WAITING = TASK.target("withdraw").value
RETRY = TASK.target("retry").value
# Published for the first time, or once more after a failed attempt.
_UNPUBLISHED = listed(TASK.sources("publish") | TASK.sources("republish"))
_RUNNING = ExecutionStatus.RUNNING.value


@dataclass(frozen=True, slots=True)
class WaitingTask:
    """A task to be sent; `lease_no` tells this publication from those before it."""

    task_id: UUID
    seller_id: str
    task_type: TaskType
    item_no: int | None
    page_no: int | None
    request_url: str
    retry_count: int
    lease_no: int


@dataclass(frozen=True, slots=True)
class TaskState:
    """A task whose message has come, as it is now."""

    task_id: UUID
    execution_id: UUID
    status: TaskStatus
    lease_no: int
    # Until the lease of an IN_PROGRESS task ends.
    lease_left: float
    is_due: bool
    # Its crawl runs, and gives way to no other.
    is_wanted: bool
    # Failed after all of its attempts.
    is_exhausted: bool
    error_code: str | None
    error_text: str | None
    seller_id: str
    task_type: TaskType
    item_no: int | None
    probe: bool

    @property
    def is_open(self) -> bool:
        return self.status in TASK.sources("cancel")

    @property
    def is_leased(self) -> bool:
        return self.status in TASK.sources("release")

    @property
    def has_failed(self) -> bool:
        """Whether it has ended without a result; one that an operator cancelled has not failed."""
        return self.status in TASK.sources("retry") and self.error_code != CANCELLED

    @property
    def is_of_a_sweep(self) -> bool:
        """Whether its call means something only together with a whole look at the listing."""
        return self.item_no is None or self.probe


def _first(which: str, columns: str, limit: str) -> str:
    """The most urgent tasks of one execution in a state, through the index of that state."""
    return f"""
        SELECT {columns} FROM crawler_tasks t
        WHERE t.task_month = e.task_month AND t.execution_id = e.execution_id AND t.status = {which}
          AND t.task_type = ANY(CAST(:types AS text[])) AND (:pages > 0 OR t.task_type <> 'MINISHOP')
        ORDER BY t.priority, t.seq LIMIT {limit}"""


_DUE_RETRY = f"'{RETRY}' AND t.available_at <= now()"
_COLUMNS = (
    "t.task_id, t.execution_id, t.seller_id, t.task_type, t.item_no, t.page_no, t.request_url, t.retry_count,"
    " t.lease_no, t.priority, t.seq"
)

# Sellers take turns as in the claim of the PostgreSQL queue. An execution with `most` unread messages gets no more: a
# message in the queue follows neither priority nor pause.
_WAITING = text(f"""
    WITH running AS (
        SELECT e.execution_id, e.task_month FROM crawling_schedule_executions e
        WHERE {WORKED_ON} AND (CAST(:execution_id AS uuid) IS NULL OR e.execution_id = :execution_id) AND (
            ({_first(f"'{WAITING}'", "t.task_id", "1")}) IS NOT NULL
            OR ({_first(_DUE_RETRY, "t.task_id", "1")}) IS NOT NULL)
        ORDER BY random() LIMIT :limit
    ), picked AS (
        SELECT t.* FROM running e CROSS JOIN LATERAL (
            SELECT w.* FROM (({_first(f"'{WAITING}'", _COLUMNS, ":limit")})
                             UNION ALL ({_first(_DUE_RETRY, _COLUMNS, ":limit")})) AS w
            ORDER BY w.priority, w.seq
            LIMIT (SELECT greatest(0, least(
                (SELECT ceil(CAST(:limit AS float8) / greatest(count(*), 1)) FROM running),
                :most - (SELECT count(*) FROM (
                    SELECT FROM crawler_tasks t
                    WHERE t.task_month = e.task_month AND t.execution_id = e.execution_id AND t.status = '{PUBLISHED}'
                    ORDER BY t.priority, t.seq LIMIT :most) AS unread))))) AS t
    ), turns AS (
        SELECT p.*, row_number() OVER (PARTITION BY p.execution_id ORDER BY p.priority, p.seq) AS turn FROM picked p
    ), placed AS (
        SELECT t.*, row_number() OVER (PARTITION BY t.task_type ORDER BY t.turn) AS place FROM turns t
    )
    SELECT task_id, seller_id, task_type, item_no, page_no, request_url, retry_count, lease_no FROM placed
    WHERE task_type <> 'MINISHOP' OR place <= :pages
    ORDER BY turn LIMIT :limit
""")

# A row that another transaction has locked is being cancelled, stored or published: waiting for it could deadlock.
_PUBLISH = text(f"""
    WITH sent AS (
        SELECT t.task_month, t.task_id FROM crawler_tasks t
        JOIN unnest(CAST(:ids AS uuid[]), CAST(:lease_nos AS int[])) AS s(task_id, lease_no) USING (task_id)
        WHERE (t.status IN ({_UNPUBLISHED})) IS TRUE AND t.available_at <= now()
          AND t.lease_no = coalesce(s.lease_no, t.lease_no)
        FOR UPDATE OF t SKIP LOCKED
    )
    UPDATE crawler_tasks t SET status = '{PUBLISHED}', published_at = now()
    FROM sent s WHERE t.task_month = s.task_month AND t.task_id = s.task_id
""")

# The number goes up so that SQS does not take the next message for a repetition of this one.
_WITHDRAWN = f"SET status = '{WAITING}', published_at = NULL, lease_no = t.lease_no + 1"

_WITHDRAW = text(f"""
    WITH here AS (
        SELECT t.task_month, t.task_id FROM crawler_tasks t
        JOIN unnest(CAST(:ids AS uuid[]), CAST(:lease_nos AS int[])) AS w(task_id, lease_no) USING (task_id)
        WHERE (t.status = '{PUBLISHED}') IS TRUE AND t.lease_no = w.lease_no
        FOR UPDATE OF t SKIP LOCKED
    )
    UPDATE crawler_tasks t {_WITHDRAWN}
    FROM here h WHERE t.task_month = h.task_month AND t.task_id = h.task_id
    RETURNING t.task_id
""")

_WITHDRAW_LOST = text(f"""
    WITH lost AS (
        SELECT t.* FROM crawling_schedule_executions e CROSS JOIN LATERAL (
            SELECT t.task_month, t.task_id FROM crawler_tasks t
            WHERE t.task_month = e.task_month AND t.execution_id = e.execution_id AND t.status = '{PUBLISHED}'
              AND t.published_at < now() - make_interval(secs => :seconds)
            ORDER BY t.priority, t.seq LIMIT :limit
            FOR UPDATE OF t SKIP LOCKED) AS t
        WHERE e.status = '{_RUNNING}' LIMIT :limit
    )
    UPDATE crawler_tasks t {_WITHDRAWN}
    FROM lost l WHERE t.task_month = l.task_month AND t.task_id = l.task_id
    RETURNING t.task_id
""")

_ADOPT = text(f"""
    WITH left_over AS (
        SELECT t.* FROM crawling_schedule_executions e CROSS JOIN LATERAL (
            SELECT t.task_month, t.task_id FROM crawler_tasks t
            WHERE t.task_month = e.task_month AND t.execution_id = e.execution_id AND t.status = '{WAITING}'
            ORDER BY t.priority, t.seq LIMIT :limit
            FOR UPDATE OF t SKIP LOCKED) AS t
        WHERE e.status = '{_RUNNING}' LIMIT :limit
    )
    UPDATE crawler_tasks t SET status = '{PUBLISHED}', published_at = now()
    FROM left_over l WHERE t.task_month = l.task_month AND t.task_id = l.task_id
    RETURNING t.task_id
""")

_STATES = text(f"""
    SELECT t.task_id, t.execution_id, t.status, t.lease_no, t.available_at <= now() AS is_due,
           coalesce(extract(epoch FROM t.lease_expires_at - now()), 0) AS lease_left, t.retry_count, t.error_code,
           t.error_text, t.seller_id, t.task_type, t.item_no, t.probe,
           (SELECT {WORKED_ON} FROM crawling_schedule_executions e WHERE e.execution_id = t.execution_id) AS is_wanted
    FROM crawler_tasks t
    WHERE t.task_id = ANY(CAST(:ids AS uuid[]))
""")


def waiting(
    connection: Connection,
    *,
    limit: int,
    pages: int,
    most: int,
    execution_id: UUID | None = None,
    types: Iterable[TaskType] = TaskType,
) -> list[WaitingTask]:
    """The most urgent tasks of all running executions, or of one, that are to be sent; executions in turn.

    At most `pages` of them are listing pages, and none is of an execution that has `most` unread messages.
    """
    values = {
        "limit": limit,
        "pages": pages,
        "most": most,
        "execution_id": execution_id,
        "types": [kind.value for kind in types],
    }
    rows = connection.execute(_WAITING, values)
    return [
        WaitingTask(
            row.task_id,
            row.seller_id,
            TaskType(row.task_type),
            row.item_no,
            row.page_no,
            row.request_url,
            row.retry_count,
            row.lease_no,
        )
        for row in rows
    ]


def publish(connection: Connection, accepted: Sequence[WaitingTask], received: Sequence[UUID]) -> None:
    """SQS has accepted these, and given those: their tasks are PUBLISHED, if they are due and not further yet."""
    if accepted or received:
        values = {
            "ids": [*(task.task_id for task in accepted), *received],
            "lease_nos": [*(task.lease_no for task in accepted), *(None for _ in received)],
        }
        connection.execute(_PUBLISH, values)


def withdraw(connection: Connection, tasks: Sequence[tuple[UUID, int]]) -> set[UUID]:
    """Let PUBLISHED tasks, by id and `lease_no`, wait for another message; returns those that do."""
    if not tasks:
        return set()
    ids, lease_nos = zip(*tasks, strict=True)
    return set(connection.execute(_WITHDRAW, {"ids": list(ids), "lease_nos": list(lease_nos)}).scalars())


def withdraw_lost(connection: Connection, *, seconds: float, limit: int) -> int:
    """Let tasks wait for another message that were published so long ago and never started; returns their number."""
    return len(connection.execute(_WITHDRAW_LOST, {"seconds": seconds, "limit": limit}).all())


def adopt(connection: Connection, *, limit: int) -> int:
    """Publish what waits for SQS in the PostgreSQL queue instead; returns the number."""
    return len(connection.execute(_ADOPT, {"limit": limit}).all())


def states(connection: Connection, ids: Sequence[UUID], *, max_retries: int) -> dict[UUID, TaskState]:
    """The tasks as they are now; those that do not exist are left out."""
    if not ids:
        return {}
    return {row.task_id: _state(row, max_retries) for row in connection.execute(_STATES, {"ids": list(ids)})}


def _state(row: Row[Any], max_retries: int) -> TaskState:
    status = TaskStatus(row.status)
    return TaskState(
        row.task_id,
        row.execution_id,
        status,
        row.lease_no,
        float(row.lease_left),
        row.is_due,
        row.is_wanted,
        used_up_attempts(status, row.error_code, row.retry_count, max_retries),
        row.error_code,
        row.error_text,
        row.seller_id,
        TaskType(row.task_type),
        row.item_no,
        row.probe,
    )
