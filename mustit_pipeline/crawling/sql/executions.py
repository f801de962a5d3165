"""Executions: at most one open per seller, counted exactly, kept for ever."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date, datetime
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    TextClause,
    exists,
    func,
    insert,
    select,
    text,
    tuple_,
    update,
)

from mustit_pipeline.catalog.sql import drift
from mustit_pipeline.catalog.sql.drift import Sighting
from mustit_pipeline.crawling.sql.tables import BROKEN_OFF, BY_CREATION, DUE_OPEN, OPEN_EXECUTION
from mustit_pipeline.crawling.sql.tables import crawling_schedule_executions as executions
from mustit_pipeline.crawling.sql.tasks import TaskHome
from mustit_pipeline.domain.errors import NotFound
from mustit_pipeline.domain.execution import OPEN_STATES, CrawlingScheduleExecution
from mustit_pipeline.domain.filters import IdPrefix
from mustit_pipeline.domain.states import ExecutionKind, ExecutionStatus, SweepStatus
from mustit_pipeline.domain.values import ExecutionId, ScheduleId, SellerId
from mustit_pipeline.foundation.id_prefixes import find_one
from mustit_pipeline.foundation.paging import Page, page


@dataclass(frozen=True, slots=True)
class StoredExecution:
    """An execution with its options and its results."""

    execution: CrawlingScheduleExecution
    task_month: date
    kind: ExecutionKind
    triggered_by: str
    full_refetch: bool
    product_limit: int | None
    requests: int
    throttled: int
    listed_count: int | None
    # Unreadable items of its listing pages: products whose numbers are unknown.
    skipped_items: int
    # Listed items whose detail names another seller.
    foreign_items: int
    sweep_status: SweepStatus
    slice_no: int
    updated_at: datetime
    # Paths of fields with drift in its bodies.
    drift: tuple[str, ...]

    @property
    def id(self) -> ExecutionId:
        return self.execution.id

    @property
    def seller_id(self) -> SellerId:
        return self.execution.seller_id

    @property
    def status(self) -> ExecutionStatus:
        return self.execution.status

    @property
    def is_light(self) -> bool:
        """Whether it gives way to every crawl that is due."""
        return self.kind is ExecutionKind.LIGHT

    @property
    def is_open(self) -> bool:
        """Whether it may still do something."""
        return self.execution.is_open

    @property
    def created_at(self) -> datetime:
        return self.execution.created_at

    @property
    def planned_tasks(self) -> int:
        """All tasks that it has so far, ended ones included."""
        return self.execution.total_tasks

    @property
    def failed_tasks(self) -> int:
        return self.execution.failed_tasks

    @property
    def ended_tasks(self) -> int:
        """Tasks that have ended, failed ones included."""
        return self.execution.completed_tasks + self.execution.failed_tasks

    @property
    def remaining_tasks(self) -> int:
        return self.execution.remaining

    @property
    def has_ended_work(self) -> bool:
        """Whether it is RUNNING although its sweep and all of its tasks have ended."""
        return self.status is ExecutionStatus.RUNNING and self.is_swept and not self.remaining_tasks

    @property
    def is_planned(self) -> bool:
        """Whether its tasks are planned; an execution that failed before that is planned when it is resumed."""
        return self.listed_count is not None or self.is_swept

    @property
    def is_swept(self) -> bool:
        """Whether the sweep of the listing has ended, complete or not."""
        return self.sweep_status is not SweepStatus.PENDING

    @property
    def home(self) -> TaskHome:
        """The key of its tasks' partition."""
        return TaskHome(self.execution.id.value, self.execution.seller_id.value, self.task_month)


def add(
    connection: Connection,
    execution: CrawlingScheduleExecution,
    schedule_id: ScheduleId,
    *,
    triggered_by: str,
    full_refetch: bool,
    product_limit: int | None,
    kind: ExecutionKind = ExecutionKind.DUE,
) -> StoredExecution:
    """Store a new execution; the caller has locked the seller's row, so that no other one is open."""
    month = execution.created_at.date().replace(day=1)
    row = connection.execute(
        insert(executions)
        .values(
            execution_id=execution.id.value,
            seller_id=execution.seller_id.value,
            schedule_id=schedule_id.value,
            kind=kind.value,
            status=execution.status.value,
            triggered_by=triggered_by,
            task_month=month,
            full_refetch=full_refetch,
            product_limit=product_limit,
            sweep_status=SweepStatus.PENDING.value,
            created_at=execution.created_at,
        )
        .returning(executions)
    ).one()
    return _stored(row)


def get(connection: Connection, execution_id: ExecutionId, *, lock: bool = False) -> StoredExecution:
    """One execution, locked on request."""
    query = select(executions).where(executions.c.execution_id == execution_id.value)
    row = connection.execute(query.with_for_update(key_share=True) if lock else query).one_or_none()
    if row is None:
        raise NotFound(
            "NOT_FOUND_EXECUTION",
            korean=f"실행을 찾을 수 없습니다: {execution_id}",
            english=f"There is no execution {execution_id}",
        )
    return _stored(row)


def find(connection: Connection, wanted: IdPrefix) -> StoredExecution:
    """The one execution whose id has this prefix."""
    row = find_one(
        connection,
        "crawling_schedule_executions",
        "execution_id",
        wanted,
        code="NOT_FOUND_EXECUTION",
        korean="실행을",
        thing="execution",
        listing="mustit execution list",
    )
    return _stored(row)


# Returns the transaction's id too, which saves every batch of results a round trip.
_LOCK_ALL = text("""
    SELECT *, CAST(pg_current_xact_id() AS text) AS transaction FROM crawling_schedule_executions
    WHERE execution_id = ANY(CAST(:ids AS uuid[])) ORDER BY execution_id FOR NO KEY UPDATE
""")


@dataclass(frozen=True, slots=True)
class LockedExecutions:
    """Executions locked until the transaction ends, and the transaction's id for `is_committed`."""

    stored: list[StoredExecution]
    transaction: str | None


def lock_all(connection: Connection, execution_ids: Collection[UUID]) -> LockedExecutions:
    """Lock several executions, always in the same order."""
    rows = connection.execute(_LOCK_ALL, {"ids": list(execution_ids)}).all()
    return LockedExecutions([_stored(row) for row in rows], rows[0].transaction if rows else None)


def find_open(connection: Connection, seller_id: SellerId, *, lock: bool = False) -> StoredExecution | None:
    """The seller's open execution, if there is one."""
    query = select(executions).where(
        executions.c.seller_id == seller_id.value, executions.c.status.in_([state.value for state in OPEN_STATES])
    )
    row = connection.execute(query.with_for_update(key_share=True) if lock else query).one_or_none()
    return None if row is None else _stored(row)


_DUE_OPEN = text(f"SELECT {DUE_OPEN}")
_MAKE_DUE = text(f"""
    UPDATE crawling_schedule_executions SET kind = '{ExecutionKind.DUE.value}'
    WHERE execution_id = :execution_id AND {OPEN_EXECUTION}
    RETURNING *
""")


def is_due_open(connection: Connection) -> bool:
    """Whether a crawl is open that light crawls give way to."""
    return connection.execute(_DUE_OPEN).scalar_one()


def make_due(connection: Connection, execution_id: ExecutionId) -> StoredExecution | None:
    """Make an open light crawl one that gives way to no other; None where it has ended."""
    row = connection.execute(_MAKE_DUE, {"execution_id": execution_id.value}).one_or_none()
    return None if row is None else _stored(row)


def find_latest(connection: Connection, seller_id: SellerId) -> StoredExecution | None:
    """The seller's newest execution, ended or not."""
    return next(iter(newest(connection, seller_id, 1).rows), None)


_FIND_ALL = text("SELECT * FROM crawling_schedule_executions WHERE execution_id = ANY(CAST(:ids AS uuid[]))")


def find_all(connection: Connection, execution_ids: Collection[UUID]) -> list[StoredExecution]:
    """Several executions, in no order; an id that there is not is left out."""
    return [_stored(row) for row in connection.execute(_FIND_ALL, {"ids": list(execution_ids)})]


def has_any_completed(connection: Connection) -> bool:
    """Whether any execution has ever completed."""
    completed = exists().where(executions.c.status == ExecutionStatus.COMPLETED.value)
    return connection.execute(select(completed)).scalar_one()


# Few among many, and wanted however long ago they were.
BROKEN_OFF_STATES = {ExecutionStatus.FAILED, ExecutionStatus.CANCELLED}


def newest(
    connection: Connection,
    seller_id: SellerId | None,
    limit: int,
    *,
    status: ExecutionStatus | None = None,
    before: UUID | None = None,
) -> Page[StoredExecution]:
    """The newest executions, of one seller or of all; `before`, the id of the last one seen, asks for what follows."""
    query = select(executions).order_by(executions.c.created_at.desc(), executions.c.execution_id.desc())
    if status is not None:
        query = query.where(executions.c.status == status.value)
    if before is not None:
        created_at = select(executions.c.created_at).where(executions.c.execution_id == before).scalar_subquery()
        query = query.where(tuple_(executions.c.created_at, executions.c.execution_id) < tuple_(created_at, before))
    query = query.where(_rows_to_look_at(seller_id, status)).limit(limit + 1)
    return page(map(_stored, connection.execute(query)), limit)


def _rows_to_look_at(seller_id: SellerId | None, status: ExecutionStatus | None) -> ColumnElement[bool] | TextClause:
    """The condition of one index: a seller's own and the open ones are few, all others go by time."""
    if seller_id is not None:
        return executions.c.seller_id == seller_id.value
    if status in OPEN_STATES:
        return text(OPEN_EXECUTION)
    return text(BROKEN_OFF if status in BROKEN_OFF_STATES else BY_CREATION)


def failures_by_reason(connection: Connection, stored: StoredExecution) -> list[dict[str, object]]:
    """Failed tasks of an execution by code: their number and one example."""
    query = text("""
        SELECT count(*) AS tasks, error_code AS code, min(error_text) AS example FROM crawler_tasks
        WHERE task_month = :task_month AND execution_id = :execution_id AND status = 'FAILED'
        GROUP BY error_code ORDER BY count(*) DESC
    """)
    values = {"task_month": stored.task_month, "execution_id": stored.id.value}
    return [dict(row) for row in connection.execute(query, values).mappings()]


def save(connection: Connection, execution: CrawlingScheduleExecution) -> None:
    """Store its state, not its counters: statements on tasks update those."""
    # An execution that failed without a plan starts only when it is resumed.
    started = execution.started_at or (func.now() if execution.status is ExecutionStatus.RUNNING else None)
    connection.execute(
        update(executions)
        .where(executions.c.execution_id == execution.id.value)
        .values(
            status=execution.status.value,
            started_at=started,
            ended_at=execution.ended_at,
            error_code=execution.error_code,
            error_text=execution.error_text,
            updated_at=text("now()"),
        )
    )


def count_requests(connection: Connection, execution_id: UUID, *, requests: int, throttled: int) -> None:
    """Add requests and 429s to its counters."""
    if requests or throttled:
        connection.execute(
            update(executions)
            .where(executions.c.execution_id == execution_id)
            .values(requests=executions.c.requests + requests, throttled=executions.c.throttled + throttled)
        )


def raise_listed(connection: Connection, execution_id: UUID, count: int) -> None:
    """Store the largest product count among the answers of this sweep: the safest one for judging completeness."""
    connection.execute(
        update(executions)
        .where(executions.c.execution_id == execution_id)
        .values(listed_count=func.greatest(func.coalesce(executions.c.listed_count, 0), count))
    )


def count_skipped(connection: Connection, execution_id: UUID, number: int) -> None:
    """Add items of a listing page that could not be read."""
    if number:
        connection.execute(
            update(executions)
            .where(executions.c.execution_id == execution_id)
            .values(skipped_items=executions.c.skipped_items + number)
        )


def count_foreign(connection: Connection, home: TaskHome) -> None:
    """Recount the listed items that belong to another seller."""
    query = text("""
        UPDATE crawling_schedule_executions SET foreign_items = (
            SELECT count(*) FROM products
            WHERE seller_id = :seller_id AND foreign_at IS NOT NULL AND last_seen_execution_id = :execution_id)
        WHERE execution_id = :execution_id
    """)
    connection.execute(query, {"seller_id": home.seller_id, "execution_id": home.execution_id})


def count_complete(connection: Connection, home: TaskHome) -> None:
    """Count its seller's complete products, so that no later question has to."""
    query = text("""
        UPDATE crawling_schedule_executions SET complete_count = (
            SELECT count(*) FROM products WHERE seller_id = :seller_id AND complete AND deleted_at IS NULL)
        WHERE execution_id = :execution_id
    """)
    connection.execute(query, {"seller_id": home.seller_id, "execution_id": home.execution_id})


def set_sweep(connection: Connection, execution_id: UUID, status: SweepStatus, seen: int | None = None) -> None:
    """Store whether the whole listing was seen, and how many products of it."""
    ended = update(executions).where(executions.c.execution_id == execution_id)
    connection.execute(ended.values(sweep_status=status.value, seen_count=seen))


# The most fields with drift that an execution names.
MOST_DRIFT = 100

# Accepted drift is left out.
_WARN = text(f"""
    UPDATE crawling_schedule_executions e SET drift = told.paths
    FROM (
        SELECT old.execution_id, (array_agg(DISTINCT every.path ORDER BY every.path))[1:{MOST_DRIFT}] AS paths
        FROM crawling_schedule_executions old
        JOIN unnest(CAST(:executions AS uuid[]), CAST(:paths AS text[]), CAST(:kinds AS text[]),
                    CAST(:observed AS text[])) AS seen(execution_id, path, kind, observed)
          USING (execution_id)
        CROSS JOIN LATERAL unnest(old.drift || seen.path) AS every(path)
        WHERE NOT EXISTS (
            SELECT FROM schema_drift known
            WHERE known.path = seen.path AND known.kind = seen.kind AND known.observed = seen.observed
              AND known.accepted_at IS NOT NULL
        )
        GROUP BY old.execution_id
    ) AS told
    WHERE e.execution_id = told.execution_id AND e.drift <> told.paths
""")


def record_drift(connection: Connection, sightings: Collection[Sighting]) -> None:
    """Record deviations, and add the unaccepted ones to their executions, which the caller has locked."""
    seen = {(one.execution_id, one.deviation) for one in sightings}
    if seen:
        values = {
            "executions": [execution_id for execution_id, _ in seen],
            "paths": [deviation.path for _, deviation in seen],
            "kinds": [deviation.kind.value for _, deviation in seen],
            "observed": [deviation.observed for _, deviation in seen],
        }
        connection.execute(_WARN, values)
        drift.record(connection, sightings)


def begin_slices(connection: Connection, execution_ids: list[UUID]) -> dict[UUID, int]:
    """Begin another slice of each: numbers that no earlier slice of theirs has had."""
    # A worker that stores results of several of them locks them in one order, and so does this.
    lock_all(connection, execution_ids)
    rows = connection.execute(
        update(executions)
        .where(executions.c.execution_id.in_(execution_ids))
        .values(slice_no=executions.c.slice_no + 1)
        .returning(executions.c.execution_id, executions.c.slice_no)
    )
    return {row.execution_id: row.slice_no for row in rows}


def changes_by_type(connection: Connection, execution_id: UUID) -> dict[str, int]:
    """How many products an execution created, deleted or restored, and how many fields changed, by type."""
    query = text("""
        SELECT kind, count(*) AS n FROM (
            SELECT life_cycle AS kind FROM product_change_sets
            WHERE execution_id = :execution_id AND life_cycle <> 'UPDATED'
            UNION ALL
            SELECT unnest(change_types) FROM product_change_sets
            WHERE execution_id = :execution_id AND life_cycle = 'UPDATED'
        ) AS changes GROUP BY kind ORDER BY kind
    """)
    return {row.kind: row.n for row in connection.execute(query, {"execution_id": execution_id})}


def _stored(row: Row[tuple[object, ...]]) -> StoredExecution:
    execution = CrawlingScheduleExecution(
        id=ExecutionId(row.execution_id),
        seller_id=SellerId(row.seller_id),
        created_at=row.created_at,
        status=ExecutionStatus(row.status),
        total_tasks=row.total_tasks,
        completed_tasks=row.completed_tasks,
        failed_tasks=row.failed_tasks,
        started_at=row.started_at,
        ended_at=row.ended_at,
        error_code=row.error_code,
        error_text=row.error_text,
    )
    return StoredExecution(
        execution,
        row.task_month,
        ExecutionKind(row.kind),
        row.triggered_by,
        row.full_refetch,
        row.product_limit,
        row.requests,
        row.throttled,
        row.listed_count,
        row.skipped_items,
        row.foreign_items,
        SweepStatus(row.sweep_status),
        row.slice_no,
        row.updated_at,
        tuple(row.drift),
    )
