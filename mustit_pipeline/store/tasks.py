"""Crawl tasks: planned in bulk, leased for a time, and written back only by whoever holds the lease."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from uuid import UUID

from sqlalchemy import Connection, Row, text

from mustit_pipeline.domain.states import TASK, TaskStatus, TaskType
from mustit_pipeline.domain.task import CANCELLED, CrawlerTask
from mustit_pipeline.domain.values import ExecutionId, ItemNo, RequestUrl, SellerId, TaskId


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


@dataclass(frozen=True, slots=True)
class LeasedTask:
    """A task in our hands until its lease ends; `lease_no` fences everything we write about it."""

    task: CrawlerTask
    home: TaskHome
    page_no: int | None
    probe: bool
    lease_no: int


_ADD = text("""
    WITH added AS (
        INSERT INTO crawler_tasks (task_month, task_id, execution_id, seller_id, task_type, task_key, item_no, page_no,
                                   probe, request_url, status, priority, published_at)
        SELECT :task_month, gen_random_uuid(), :execution_id, :seller_id, p.task_type, p.task_key, p.item_no, p.page_no,
               p.probe, p.url, :published, p.priority, now()
        FROM unnest(CAST(:types AS text[]), CAST(:keys AS text[]), CAST(:items AS bigint[]), CAST(:pages AS int[]),
                    CAST(:probes AS boolean[]), CAST(:urls AS text[]), CAST(:priorities AS smallint[]))
             WITH ORDINALITY AS p(task_type, task_key, item_no, page_no, probe, url, priority, position)
        ORDER BY p.position
        ON CONFLICT (task_month, execution_id, task_key) DO NOTHING
        RETURNING 1
    )
    UPDATE crawling_schedule_executions
    SET total_tasks = total_tasks + (SELECT count(*) FROM added), updated_at = now()
    WHERE execution_id = :execution_id
    RETURNING (SELECT count(*) FROM added) AS added
""")

_CLAIM = text("""
    WITH picked AS (
        SELECT t.task_month, t.task_id FROM crawler_tasks t
        WHERE t.task_month = :task_month AND t.execution_id = :execution_id AND t.status IN ('PUBLISHED', 'RETRY')
          AND t.task_type = ANY(CAST(:types AS text[])) AND t.available_at <= now()
          AND EXISTS (SELECT FROM crawling_schedule_executions e
                      WHERE e.execution_id = :execution_id AND e.status = 'RUNNING')
        ORDER BY t.priority, t.seq LIMIT :limit
        FOR UPDATE OF t SKIP LOCKED
    )
    UPDATE crawler_tasks t
    SET status = 'IN_PROGRESS', lease_owner = :owner, lease_no = t.lease_no + 1, started_at = now(),
        lease_expires_at = now() + make_interval(secs => :lease_seconds)
    FROM picked p WHERE t.task_month = p.task_month AND t.task_id = p.task_id
    RETURNING t.*
""")

_SAVE = text("""
    UPDATE crawler_tasks t
    SET status = s.status, retry_count = s.retry_count, release_count = s.release_count, error_code = s.error_code,
        error_text = s.error_text, lease_owner = NULL, lease_expires_at = NULL,
        available_at = now() + make_interval(secs => s.delay),
        published_at = CASE WHEN s.status = 'PUBLISHED' THEN now() ELSE t.published_at END,
        completed_at = CASE WHEN s.status IN ('COMPLETED', 'FAILED') THEN now() END
    FROM unnest(CAST(:months AS date[]), CAST(:ids AS uuid[]), CAST(:lease_nos AS int[]), CAST(:statuses AS text[]),
                CAST(:retry_counts AS smallint[]), CAST(:release_counts AS smallint[]), CAST(:codes AS text[]),
                CAST(:errors AS text[]), CAST(:delays AS float8[]))
         AS s(task_month, task_id, lease_no, status, retry_count, release_count, error_code, error_text, delay)
    WHERE t.task_month = s.task_month AND t.task_id = s.task_id AND t.lease_no = s.lease_no AND t.status = 'IN_PROGRESS'
    RETURNING t.task_id, t.execution_id, t.status
""")

_RECORD = text("""
    UPDATE crawling_schedule_executions e
    SET completed_tasks = e.completed_tasks + o.completed, failed_tasks = e.failed_tasks + o.failed, updated_at = now()
    FROM unnest(CAST(:ids AS uuid[]), CAST(:completed AS int[]), CAST(:failed AS int[])) AS o(id, completed, failed)
    WHERE e.execution_id = o.id
""")

_HEARTBEAT = text("""
    UPDATE crawler_tasks t SET lease_expires_at = now() + make_interval(secs => :lease_seconds)
    FROM unnest(CAST(:months AS date[]), CAST(:ids AS uuid[]), CAST(:lease_nos AS int[])) AS h(month, id, lease_no)
    WHERE t.task_month = h.month AND t.task_id = h.id AND t.lease_no = h.lease_no AND t.status = 'IN_PROGRESS'
    RETURNING t.task_id
""")

_EXPIRED = text("""
    SELECT t.* FROM crawler_tasks t
    WHERE t.status = 'IN_PROGRESS' AND t.lease_expires_at < now()
      AND (CAST(:execution_id AS uuid) IS NULL OR t.execution_id = :execution_id)
    ORDER BY t.lease_expires_at LIMIT :limit
    FOR UPDATE SKIP LOCKED
""")

_CANCEL = text("""
    WITH ended AS (
        UPDATE crawler_tasks SET status = :target, error_code = :reason, error_text = :reason, lease_owner = NULL,
               lease_expires_at = NULL, completed_at = now()
        WHERE task_month = :task_month AND execution_id = :execution_id AND status = ANY(CAST(:sources AS text[]))
        RETURNING 1
    )
    UPDATE crawling_schedule_executions SET failed_tasks = failed_tasks + (SELECT count(*) FROM ended)
    WHERE execution_id = :execution_id
""")

_OPEN_WORK = text("""
    SELECT count(*) AS open, min(available_at) FILTER (WHERE status IN ('PUBLISHED', 'RETRY')) AS next_at,
           extract(epoch FROM min(least(available_at, lease_expires_at)) - now()) AS next_in
    FROM crawler_tasks
    WHERE task_month = :task_month AND execution_id = :execution_id AND task_type = ANY(CAST(:types AS text[]))
      AND status IN ('WAITING', 'PUBLISHED', 'IN_PROGRESS', 'RETRY')
""")


def ensure_month(connection: Connection, month: date) -> None:
    """Make the partition that holds a month's tasks; two callers at once are fine."""
    following = date(month.year + month.month // 12, month.month % 12 + 1, 1)
    name = f"crawler_tasks_{month:%Y_%m}"
    if connection.execute(text("SELECT to_regclass(:name)"), {"name": name}).scalar_one() is not None:
        return
    connection.execute(text("SELECT pg_advisory_xact_lock(hashtext('crawler_tasks partitions'))"))
    connection.exec_driver_sql(
        f"CREATE TABLE IF NOT EXISTS {name} PARTITION OF crawler_tasks FOR VALUES FROM ('{month}') TO ('{following}')"
    )


def add(connection: Connection, home: TaskHome, planned: Sequence[PlannedTask]) -> int:
    """Plan tasks and count them in their execution; those planned before are left alone. Returns how many are new."""
    if not planned:
        return 0
    values = {
        "task_month": home.task_month,
        "execution_id": home.execution_id,
        "seller_id": home.seller_id,
        "published": TASK.target("publish").value,
        "types": [task.url.task_type.value for task in planned],
        "keys": [task.key for task in planned],
        "items": [task.item_no for task in planned],
        "pages": [task.page_no for task in planned],
        "probes": [task.probe for task in planned],
        "urls": [task.url.value for task in planned],
        "priorities": [task.priority for task in planned],
    }
    return connection.execute(_ADD, values).scalar_one()


def claim(
    connection: Connection,
    home: TaskHome,
    types: Iterable[TaskType],
    *,
    owner: str,
    limit: int,
    lease_seconds: float,
    max_retries: int,
) -> list[LeasedTask]:
    """Lease the next tasks of an execution that is running, most urgent first."""
    values = {
        "task_month": home.task_month,
        "execution_id": home.execution_id,
        "types": [kind.value for kind in types],
        "owner": owner,
        "limit": limit,
        "lease_seconds": lease_seconds,
    }
    leased = [_leased(row, max_retries) for row in connection.execute(_CLAIM, values)]
    return sorted(leased, key=lambda lease: lease.task.item_no.value if lease.task.item_no else 0)


def claimable(connection: Connection, home: TaskHome, types: Iterable[TaskType], limit: int) -> int:
    """How many tasks could be leased now, counted up to a limit."""
    query = text("""
        SELECT count(*) FROM (
            SELECT FROM crawler_tasks
            WHERE task_month = :task_month AND execution_id = :execution_id AND status IN ('PUBLISHED', 'RETRY')
              AND task_type = ANY(CAST(:types AS text[])) AND available_at <= now()
            LIMIT :limit) AS ready
    """)
    values = {"task_month": home.task_month, "execution_id": home.execution_id, "limit": limit}
    return connection.execute(query, values | {"types": [kind.value for kind in types]}).scalar_one()


def save(connection: Connection, outcomes: Sequence[tuple[LeasedTask, float]]) -> set[UUID]:
    """Write tasks back with the delay until they may be claimed again; returns those whose lease still was ours."""
    if not outcomes:
        return set()
    values = {
        "months": [lease.home.task_month for lease, _ in outcomes],
        "ids": [lease.task.id.value for lease, _ in outcomes],
        "lease_nos": [lease.lease_no for lease, _ in outcomes],
        "statuses": [lease.task.status.value for lease, _ in outcomes],
        "retry_counts": [lease.task.retry_count for lease, _ in outcomes],
        "release_counts": [lease.task.release_count for lease, _ in outcomes],
        "codes": [lease.task.error_code for lease, _ in outcomes],
        "errors": [lease.task.error_text for lease, _ in outcomes],
        "delays": [delay for _, delay in outcomes],
    }
    written = connection.execute(_SAVE, values).all()
    _record(connection, written)
    return {row.task_id for row in written}


def heartbeat(connection: Connection, leases: Sequence[LeasedTask], lease_seconds: float) -> set[UUID]:
    """Keep leases alive; returns those that still are ours."""
    if not leases:
        return set()
    values = {
        "months": [lease.home.task_month for lease in leases],
        "ids": [lease.task.id.value for lease in leases],
        "lease_nos": [lease.lease_no for lease in leases],
        "lease_seconds": lease_seconds,
    }
    return {row.task_id for row in connection.execute(_HEARTBEAT, values)}


def take_expired(
    connection: Connection, *, limit: int, max_retries: int, execution_id: UUID | None = None
) -> list[LeasedTask]:
    """Lock tasks whose worker fell silent, for the caller to release in the same transaction."""
    rows = connection.execute(_EXPIRED, {"limit": limit, "execution_id": execution_id})
    return [_leased(row, max_retries) for row in rows]


def cancel_open(connection: Connection, home: TaskHome) -> None:
    """End every open task of a cancelled execution."""
    values = {
        "task_month": home.task_month,
        "execution_id": home.execution_id,
        "target": TASK.target("cancel").value,
        "sources": [status.value for status in TASK.sources("cancel")],
        "reason": CANCELLED,
    }
    connection.execute(_CANCEL, values)


@dataclass(frozen=True, slots=True)
class OpenWork:
    """How many tasks have not ended, and in how many seconds the next one can be claimed."""

    open: int
    next_in: float


def open_work(connection: Connection, home: TaskHome, types: Iterable[TaskType]) -> OpenWork:
    """What is left of an execution's tasks of these types."""
    values = {
        "task_month": home.task_month,
        "execution_id": home.execution_id,
        "types": [kind.value for kind in types],
    }
    row = connection.execute(_OPEN_WORK, values).one()
    return OpenWork(row.open, max(0.0, float(row.next_in or 0.0)))


@dataclass(frozen=True, slots=True)
class PageOutcomes:
    """How an execution's listing pages stand."""

    open: int
    failed: int


def page_outcomes(connection: Connection, home: TaskHome) -> PageOutcomes:
    """How many listing pages have not ended, and how many have failed."""
    query = text("""
        SELECT count(*) FILTER (WHERE status NOT IN ('COMPLETED', 'FAILED')) AS open,
               count(*) FILTER (WHERE status = 'FAILED') AS failed
        FROM crawler_tasks
        WHERE task_month = :task_month AND execution_id = :execution_id AND task_type = 'MINISHOP'
    """)
    values = {"task_month": home.task_month, "execution_id": home.execution_id}
    row = connection.execute(query, values).one()
    return PageOutcomes(row.open, row.failed)


def _record(connection: Connection, written: Sequence[Row[tuple[object, ...]]]) -> None:
    ended: dict[UUID, list[int]] = {}
    for row in written:
        if row.status in (TaskStatus.COMPLETED, TaskStatus.FAILED):
            ended.setdefault(row.execution_id, [0, 0])[row.status == TaskStatus.FAILED] += 1
    if ended:
        values = {
            "ids": list(ended),
            "completed": [completed for completed, _ in ended.values()],
            "failed": [failed for _, failed in ended.values()],
        }
        connection.execute(_RECORD, values)


def _leased(row: Row[tuple[object, ...]], max_retries: int) -> LeasedTask:
    task = CrawlerTask(
        id=TaskId(row.task_id),
        execution_id=ExecutionId(row.execution_id),
        seller_id=SellerId(row.seller_id),
        task_type=TaskType(row.task_type),
        request_url=row.request_url,
        created_at=row.created_at,
        item_no=None if row.item_no is None else ItemNo(row.item_no),
        status=TaskStatus(row.status),
        retry_count=row.retry_count,
        release_count=row.release_count,
        max_retries=max_retries,
        published_at=row.published_at,
        started_at=row.started_at,
    )
    home = TaskHome(row.execution_id, row.seller_id, row.task_month)
    return LeasedTask(task, home, row.page_no, row.probe, row.lease_no)
