"""Leases of crawl tasks: claimed for a time, kept alive by heartbeats, and written back only by their holder."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import zip_longest
from typing import Any
from uuid import UUID

from msgspec import Struct
from sqlalchemy import Connection, Row, text

from mustit_pipeline.crawling.sql.tables import WORKED_ON
from mustit_pipeline.crawling.sql.tasks import CLAIMABLE, HAS_LEASE, IN_MONTHS, TaskHome
from mustit_pipeline.domain.limits import TASK_MAX_RELEASES
from mustit_pipeline.domain.states import TASK, TaskStatus, TaskType
from mustit_pipeline.domain.task import CrawlerTask
from mustit_pipeline.domain.values import ExecutionId, ItemNo, SellerId, TaskId
from mustit_pipeline.foundation.clock import utc_now


class LeasedTask(Struct, frozen=True):
    """A task in our hands until its lease ends; `lease_no` fences everything we write about it."""

    task: CrawlerTask
    home: TaskHome
    page_no: int | None
    probe: bool
    lease_no: int
    # The hash of the catalog's newest content of this call: an answer with the same hash is unchanged.
    known_hash: str | None = None

    @property
    def task_id(self) -> UUID:
        return self.task.id.value

    @property
    def task_type(self) -> TaskType:
        return self.task.task_type

    @property
    def status(self) -> TaskStatus:
        return self.task.status

    @property
    def item_no(self) -> int | None:
        """The product that it asks for; None for a listing page."""
        return None if self.task.item_no is None else self.task.item_no.value

    @property
    def ended_at(self) -> datetime:
        """When its task ended; now, where that goes on."""
        return self.task.completed_at or utc_now()

    @property
    def is_exhausted(self) -> bool:
        """Whether its task has failed after all attempts."""
        return self.task.is_exhausted

    @property
    def error_code(self) -> str | None:
        return self.task.error_code

    @property
    def error_text(self) -> str | None:
        return self.task.error_text


_KNOWN_HASH = """(
    SELECT CASE t.task_type WHEN 'PRODUCT_DETAIL' THEN p.detail_data_hash
                            WHEN 'PRODUCT_OPTION' THEN p.option_data_hash END
    FROM products p WHERE p.seller_id = t.seller_id AND p.item_no = t.item_no) AS known_hash"""
# A task with a lease is IN_PROGRESS, by a constraint of the table. With a condition on the status, or without the ids,
# the planner would scan all recently expired leases instead of looking these tasks up. num_nulls() is used because with
# IS NOT NULL the planner expects hardly any such task, and chooses a nested loop.
_HELD = f"num_nulls(t.lease_owner) <> 1 AND t.task_id = ANY(CAST(:ids AS uuid[])) AND {IN_MONTHS}"

# What a lease is made of; all other columns would be read for nothing.
_COLUMNS = """t.task_id, t.execution_id, t.seller_id, t.task_month, t.task_type, t.item_no, t.page_no, t.probe,
    t.request_url, t.status, t.retry_count, t.release_count, t.priority, t.lease_no, t.created_at, t.published_at,
    t.started_at"""

_CLAIM = text(f"""
    WITH picked AS (
        SELECT t.task_id FROM crawler_tasks t
        WHERE t.task_month = :task_month AND t.execution_id = :execution_id AND t.status IN ({CLAIMABLE})
          AND t.task_type = ANY(CAST(:types AS text[])) AND t.available_at <= now()
          AND EXISTS (SELECT FROM crawling_schedule_executions e
                      WHERE e.execution_id = :execution_id AND e.status = 'RUNNING')
        ORDER BY t.priority, t.seq LIMIT :limit
        FOR UPDATE OF t SKIP LOCKED
    )
    UPDATE crawler_tasks t
    SET status = '{TASK.target("start").value}', lease_owner = :owner, lease_no = t.lease_no + 1, started_at = now(),
        lease_expires_at = now() + make_interval(secs => :lease_seconds)
    FROM picked p WHERE t.task_month = :task_month AND t.task_id = p.task_id
    RETURNING {_COLUMNS}, {_KNOWN_HASH}
""")

# The same number from every running execution, however large its seller is; if there are more executions than wanted
# tasks, chance decides. Pages are taken from the executions in turn too, at most `pages`; the others stay. Light crawls
# give way to those that are due.
_CLAIM_ANY = text(f"""
    WITH running AS (
        SELECT e.execution_id, e.task_month FROM crawling_schedule_executions e
        WHERE {WORKED_ON} AND (
            SELECT t.task_id FROM crawler_tasks t
            WHERE t.task_month = e.task_month AND t.execution_id = e.execution_id AND t.status IN ({CLAIMABLE})
              AND t.available_at <= now() AND (:pages > 0 OR t.task_type <> 'MINISHOP')
            ORDER BY t.priority, t.seq LIMIT 1) IS NOT NULL
        ORDER BY random() LIMIT :limit
    ), picked AS (
        SELECT t.* FROM running r CROSS JOIN LATERAL (
            SELECT t.task_month, t.task_id, t.execution_id, t.task_type, t.seq FROM crawler_tasks t
            WHERE t.task_month = r.task_month AND t.execution_id = r.execution_id AND t.status IN ({CLAIMABLE})
              AND t.available_at <= now() AND (:pages > 0 OR t.task_type <> 'MINISHOP')
            ORDER BY t.priority, t.seq LIMIT (SELECT ceil(CAST(:limit AS float8) / greatest(count(*), 1)) FROM running)
            FOR UPDATE OF t SKIP LOCKED) AS t
        LIMIT :limit
    ), turns AS (
        SELECT p.*, row_number() OVER (PARTITION BY p.execution_id, p.task_type ORDER BY p.seq) AS turn FROM picked p
    ), taken AS (
        SELECT t.*, row_number() OVER (PARTITION BY t.task_type ORDER BY t.turn) AS place FROM turns t
    )
    UPDATE crawler_tasks t
    SET status = '{TASK.target("start").value}', lease_owner = :owner, lease_no = t.lease_no + 1, started_at = now(),
        lease_expires_at = now() + make_interval(secs => :lease_seconds)
    FROM taken p
    WHERE t.task_month = p.task_month AND t.task_id = p.task_id AND (p.task_type <> 'MINISHOP' OR p.place <= :pages)
    RETURNING {_COLUMNS}, {_KNOWN_HASH}
""")

# By their ids, in whichever month they lie. `IS TRUE` keeps the planner from scanning all claimable tasks instead, and
# the subquery from joining all executions.
_CLAIM_THESE = text(f"""
    WITH picked AS (
        SELECT t.task_month, t.task_id FROM crawler_tasks t
        WHERE t.task_id = ANY(CAST(:ids AS uuid[])) AND (t.status IN ({CLAIMABLE})) IS TRUE AND t.available_at <= now()
          AND (SELECT {WORKED_ON} FROM crawling_schedule_executions e WHERE e.execution_id = t.execution_id)
        FOR UPDATE OF t SKIP LOCKED
    )
    UPDATE crawler_tasks t
    SET status = '{TASK.target("start").value}', lease_owner = :owner, lease_no = t.lease_no + 1, started_at = now(),
        lease_expires_at = now() + make_interval(secs => :lease_seconds)
    FROM picked p WHERE t.task_month = p.task_month AND t.task_id = p.task_id
    RETURNING {_COLUMNS}, {_KNOWN_HASH}
""")

# A task whose worker died goes to the end of the queue: if workers die again and again, each crash hits other tasks,
# and only a task that causes the crash is released too often.
_SAVE = text(f"""
    WITH saved AS (
        UPDATE crawler_tasks t
        SET status = s.status, retry_count = s.retry_count, release_count = s.release_count, error_code = s.error_code,
            error_text = s.error_text, lease_owner = NULL, lease_expires_at = NULL,
            available_at = now() + make_interval(secs => s.delay),
            published_at = CASE WHEN s.status = '{TASK.target("release").value}' THEN now() ELSE t.published_at END,
            seq = CASE WHEN s.status = '{TASK.target("release").value}' THEN nextval('crawler_task_seq') ELSE t.seq END,
            completed_at = CASE WHEN s.status IN ('COMPLETED', 'FAILED') THEN now() END
        FROM unnest(CAST(:months AS date[]), CAST(:ids AS uuid[]), CAST(:lease_nos AS int[]), CAST(:statuses AS text[]),
                    CAST(:retry_counts AS smallint[]), CAST(:release_counts AS smallint[]), CAST(:codes AS text[]),
                    CAST(:errors AS text[]), CAST(:delays AS float8[]))
             AS s(task_month, task_id, lease_no, status, retry_count, release_count, error_code, error_text, delay)
        WHERE t.task_month = s.task_month AND t.task_id = s.task_id AND t.lease_no = s.lease_no AND {_HELD}
        RETURNING t.task_id, t.execution_id, t.status
    ), ended AS (
        SELECT execution_id, count(*) FILTER (WHERE status = 'COMPLETED') AS completed,
               count(*) FILTER (WHERE status = 'FAILED') AS failed
        FROM saved GROUP BY execution_id
    ), counted AS (
        UPDATE crawling_schedule_executions e
        SET completed_tasks = e.completed_tasks + coalesce(o.completed, 0),
            failed_tasks = e.failed_tasks + coalesce(o.failed, 0),
            requests = e.requests + c.requests, throttled = e.throttled + c.throttled, updated_at = now()
        FROM unnest(CAST(:executions AS uuid[]), CAST(:requests AS int[]), CAST(:throttled AS int[]))
             AS c(execution_id, requests, throttled) LEFT JOIN ended o USING (execution_id)
        WHERE e.execution_id = c.execution_id
    )
    SELECT task_id FROM saved
""")

# As if the lease had never been taken: neither a retry nor a release is counted.
_HAND_BACK = text(f"""
    UPDATE crawler_tasks t
    SET status = '{TASK.target("release").value}', published_at = now(), started_at = NULL, lease_owner = NULL,
        lease_expires_at = NULL
    FROM unnest(CAST(:months AS date[]), CAST(:ids AS uuid[]), CAST(:lease_nos AS int[])) AS h(month, id, lease_no)
    WHERE t.task_month = h.month AND t.task_id = h.id AND t.lease_no = h.lease_no AND {_HELD}
""")

# A row that another transaction has locked is being stored, cancelled or released: waiting for it could deadlock.
_HEARTBEAT = text(f"""
    WITH held AS (
        SELECT t.task_month, t.task_id FROM crawler_tasks t
        JOIN unnest(CAST(:months AS date[]), CAST(:ids AS uuid[]), CAST(:lease_nos AS int[])) AS h(month, id, lease_no)
          ON t.task_month = h.month AND t.task_id = h.id AND t.lease_no = h.lease_no
        WHERE {_HELD}
        FOR NO KEY UPDATE OF t SKIP LOCKED
    )
    UPDATE crawler_tasks t SET lease_expires_at = now() + make_interval(secs => :lease_seconds)
    FROM held WHERE t.task_month = held.task_month AND t.task_id = held.task_id AND {_HELD}
    RETURNING t.task_id
""")

# More leases may expire meanwhile: only those of the locked executions are taken. `IS TRUE` keeps the planner from
# using the index on executions: expired leases are few, an execution's tasks are many.
_EXPIRED = text(f"""
    SELECT {_COLUMNS}, NULL AS known_hash FROM crawler_tasks t
    WHERE t.lease_expires_at < now() AND {HAS_LEASE}
      AND (t.execution_id = ANY(CAST(:execution_ids AS uuid[]))) IS TRUE
    ORDER BY t.lease_expires_at LIMIT :limit
    FOR UPDATE SKIP LOCKED
""")

_LOCK_EXPIRED = text(f"""
    SELECT e.execution_id FROM crawling_schedule_executions e
    WHERE (CAST(:execution_id AS uuid) IS NULL OR e.execution_id = :execution_id)
      AND e.execution_id = ANY(ARRAY(SELECT t.execution_id FROM crawler_tasks t
                                     WHERE t.lease_expires_at < now() AND {HAS_LEASE}))
    ORDER BY e.execution_id FOR NO KEY UPDATE
""")


def claim(
    connection: Connection,
    home: TaskHome,
    types: Iterable[TaskType],
    *,
    owner: str,
    limit: int,
    lease_seconds: float,
    max_retries: int,
    max_releases: int = TASK_MAX_RELEASES,
) -> list[LeasedTask]:
    """Lease the next tasks of a running execution, most urgent first."""
    values = {
        "task_month": home.task_month,
        "execution_id": home.execution_id,
        "types": [kind.value for kind in types],
        "owner": owner,
        "limit": limit,
        "lease_seconds": lease_seconds,
    }
    return _leases(connection.execute(_CLAIM, values), max_retries, max_releases)


def claim_any(
    connection: Connection,
    *,
    owner: str,
    limit: int,
    pages: int | None = None,
    lease_seconds: float,
    max_retries: int,
    max_releases: int,
) -> list[LeasedTask]:
    """Lease the most urgent tasks of all running executions, the same number of each, in turn.

    At most `pages` of them are listing pages, if given.
    """
    most_pages = limit if pages is None else pages
    values = {"owner": owner, "limit": limit, "pages": most_pages, "lease_seconds": lease_seconds}
    return _in_turns(connection.execute(_CLAIM_ANY, values), max_retries, max_releases)


def claim_these(
    connection: Connection,
    ids: Sequence[UUID],
    *,
    owner: str,
    lease_seconds: float,
    max_retries: int,
    max_releases: int,
) -> list[LeasedTask]:
    """Lease those of these tasks that may start now, most urgent first, executions in turn."""
    if not ids:
        return []
    values = {"ids": list(ids), "owner": owner, "lease_seconds": lease_seconds}
    return _in_turns(connection.execute(_CLAIM_THESE, values), max_retries, max_releases)


def _in_turns(rows: Iterable[Row[Any]], max_retries: int, max_releases: int) -> list[LeasedTask]:
    given: dict[UUID, list[LeasedTask]] = {}
    for lease in _leases(rows, max_retries, max_releases):
        given.setdefault(lease.home.execution_id, []).append(lease)
    return [lease for turn in zip_longest(*given.values()) for lease in turn if lease is not None]


def save(
    connection: Connection,
    outcomes: Sequence[tuple[LeasedTask, float]],
    calls: Mapping[UUID, tuple[int, int]] | None = None,
) -> set[UUID]:
    """Write tasks back with the delay until their next claim; returns those whose lease was still held.

    Their executions count the ended tasks, and the requests and 429s of `calls`, which were made even if the lease is
    lost.
    """
    executions = sorted({lease.home.execution_id for lease, _ in outcomes} | (calls or {}).keys())
    if not executions:
        return set()
    made = [(calls or {}).get(execution_id, (0, 0)) for execution_id in executions]
    moved = [lease.task for lease, _ in outcomes]
    values = _fences([lease for lease, _ in outcomes]) | {
        "statuses": [task.status.value for task in moved],
        "retry_counts": [task.retry_count for task in moved],
        "release_counts": [task.release_count for task in moved],
        "codes": [task.error_code for task in moved],
        "errors": [task.error_text for task in moved],
        "delays": [delay for _, delay in outcomes],
        "executions": executions,
        "requests": [requests for requests, _ in made],
        "throttled": [throttled for _, throttled in made],
    }
    return set(connection.execute(_SAVE, values).scalars())


def hand_back(connection: Connection, leases: Sequence[LeasedTask]) -> None:
    """Return leases without an answer; nothing is counted, unlike the release of an expired lease."""
    if leases:
        connection.execute(_HAND_BACK, _fences(leases))


def heartbeat(connection: Connection, leases: Sequence[LeasedTask], lease_seconds: float) -> set[UUID]:
    """Extend leases; returns those that are still held and that no other transaction is writing."""
    if not leases:
        return set()
    rows = connection.execute(_HEARTBEAT, _fences(leases) | {"lease_seconds": lease_seconds})
    return {row.task_id for row in rows}


def take_expired(
    connection: Connection,
    *,
    limit: int,
    max_retries: int,
    max_releases: int = TASK_MAX_RELEASES,
    execution_id: UUID | None = None,
) -> list[LeasedTask]:
    """Lock tasks whose lease has expired, for the caller to release in the same transaction."""
    # Executions before their tasks: the common lock order.
    locked = connection.execute(_LOCK_EXPIRED, {"execution_id": execution_id}).scalars().all()
    if not locked:
        return []
    rows = connection.execute(_EXPIRED, {"limit": limit, "execution_ids": locked})
    return _leases(rows, max_retries, max_releases)


def _fences(leases: Sequence[LeasedTask]) -> dict[str, object]:
    return {
        "months": [lease.home.task_month for lease in leases],
        "all_months": sorted({lease.home.task_month for lease in leases}),
        "ids": [lease.task_id for lease in leases],
        "lease_nos": [lease.lease_no for lease in leases],
    }


def _leases(rows: Iterable[Row[Any]], max_retries: int, max_releases: int) -> list[LeasedTask]:
    """The most urgent first, by product, and pages in order: what moves to a later page is seen twice, not missed.

    Tasks of one execution share its objects: creating them for each task would double its cost.
    """
    homes: dict[UUID, tuple[TaskHome, ExecutionId, SellerId]] = {}
    leases: list[LeasedTask] = []
    for row in sorted(rows, key=lambda row: (row.priority, row.item_no or 0, row.page_no or 0)):
        if row.execution_id not in homes:
            home = TaskHome(row.execution_id, row.seller_id, row.task_month)
            homes[row.execution_id] = home, ExecutionId(row.execution_id), SellerId(row.seller_id)
        home, execution_id, seller_id = homes[row.execution_id]
        task = CrawlerTask(
            id=TaskId(row.task_id),
            execution_id=execution_id,
            seller_id=seller_id,
            task_type=TaskType(row.task_type),
            request_url=row.request_url,
            created_at=row.created_at,
            item_no=None if row.item_no is None else ItemNo(row.item_no),
            status=TaskStatus(row.status),
            retry_count=row.retry_count,
            release_count=row.release_count,
            max_retries=max_retries,
            max_releases=max_releases,
            published_at=row.published_at,
            started_at=row.started_at,
        )
        leases.append(LeasedTask(task, home, row.page_no, row.probe, row.lease_no, row.known_hash))
    return leases
