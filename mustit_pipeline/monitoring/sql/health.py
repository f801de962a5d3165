"""Present problems of sellers, holds, sweeps, events and the pool; what grows is read through indexes alone."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text

from mustit_pipeline.domain.states import (
    ChangeHoldStatus,
    ExecutionStatus,
    HoldStatus,
    OutboxStatus,
    ScheduleStatus,
    SellerStatus,
    SweepStatus,
)
from mustit_pipeline.foundation.tables import BY_TIME
from mustit_pipeline.outbox.sql.outbox_states import FIRST_CHANGED_AT, UNSENT


@dataclass(frozen=True, slots=True)
class Held:
    """A seller's hold: how many products, of how many."""

    seller_id: str
    number: int
    of: int


@dataclass(frozen=True, slots=True)
class Sweep:
    """The result of a seller's newest sweep of the whole listing."""

    seller_id: str
    complete: bool
    listed: int
    seen: int


@dataclass(frozen=True, slots=True)
class Backlog:
    """The number of rows, and since when the oldest change has waited."""

    number: int
    oldest: datetime | None


@dataclass(frozen=True, slots=True)
class PoolState:
    """Until when the breaker or a host pause stops calls to the marketplace."""

    breaker_open_until: datetime | None
    paused_until: datetime | None


@dataclass(frozen=True, slots=True)
class Ailing:
    """Sellers with a problem: the names of the first, the number of all, and the id of the very first."""

    names: tuple[str, ...]
    number: int
    first: str | None


ACTIVE = f"s.status = '{SellerStatus.ACTIVE.value}'"

_HELD_DELETIONS = text(f"""
    SELECT seller_id, cardinality(item_nos) AS number, live_count AS total FROM deletion_holds
    WHERE status = '{HoldStatus.OPEN.value}' ORDER BY seller_id
""")

_HELD_CHANGES = text(f"""
    SELECT seller_id, suspicious AS number, looked_at AS total FROM change_holds
    WHERE status = '{ChangeHoldStatus.OPEN.value}' ORDER BY seller_id
""")

# Only sweeps without a limit should see the whole listing. Products are counted only for an incomplete sweep that ended
# before its own count was stored.
_SWEEPS = text(f"""
    SELECT s.seller_id, e.sweep_status = '{SweepStatus.COMPLETE.value}' AS complete, e.listed_count AS listed,
           CASE WHEN e.sweep_status = '{SweepStatus.COMPLETE.value}' THEN e.listed_count
                WHEN e.seen_count IS NOT NULL THEN e.seen_count
                WHEN :counted THEN (SELECT count(*) FROM products p
                      WHERE p.seller_id = s.seller_id AND p.last_seen_execution_id = e.execution_id) ELSE 0 END AS seen
    FROM sellers s
    CROSS JOIN LATERAL (
        SELECT execution_id, sweep_status, listed_count, seen_count FROM crawling_schedule_executions
        WHERE seller_id = s.seller_id AND started_at >= :since AND sweep_status <> '{SweepStatus.PENDING.value}'
          AND listed_count IS NOT NULL AND product_limit IS NULL AND status <> '{ExecutionStatus.CANCELLED.value}'
        ORDER BY started_at DESC LIMIT 1
    ) AS e
    WHERE {ACTIVE} ORDER BY s.seller_id
""")

_FAILED = text(f"SELECT count(*) FROM product_outbox WHERE status = '{OutboxStatus.FAILED.value}' AND {BY_TIME}")

_BACKLOG = text(f"""
    SELECT count(*) AS number, min({FIRST_CHANGED_AT}) AS oldest FROM product_outbox o
    WHERE o.status IN ({UNSENT}) AND o.{BY_TIME}
""")

_FAILED_SCHEDULES = text(f"""
    SELECT seller_id FROM crawling_schedules WHERE status = '{ScheduleStatus.FAILED.value}' ORDER BY seller_id
""")

_OF_INACTIVE_SELLERS = text(f"""
    SELECT a.subject FROM alerts a
    WHERE a.ended_at IS NULL AND a.kind = :kind AND starts_with(a.subject, CAST(:before AS text))
      AND NOT EXISTS (SELECT FROM sellers s
                      WHERE s.seller_id = substr(a.subject, length(CAST(:before AS text)) + 1) AND {ACTIVE})
""")

_POOL = text("SELECT breaker_open_until, paused_until FROM pool_state")

# The calls of one product.
ONE_PRODUCT = 2

_NAMED = """
    SELECT (array_agg(name ORDER BY since, seller_id))[1:{most}] AS names, count(*) AS number,
           (array_agg(seller_id ORDER BY since, seller_id))[1] AS first
    FROM ({ailing}) AS ailing
"""
_DAY = "to_char(since AT TIME ZONE 'Asia/Seoul', 'YYYY-MM-DD HH24:MI')"

# The newest end decides; cancelled executions are not counted. A crawl under the recrawl policy may have a handful of
# tasks, of which one product that always fails is a large share: so much of a day's tasks must have failed, and more
# than the calls of one product, unless nothing else was fetched.
_FAILING = f"""
    SELECT seller_id, since, seller_id || ' (' || why || ', ' || {_DAY} || ')' AS name FROM (
        SELECT s.seller_id, e.ended_at AS since,
               CASE WHEN e.status = '{ExecutionStatus.FAILED.value}' THEN coalesce(e.error_code, 'FAILED')
                    ELSE e.failed_tasks || ' of ' || e.total_tasks || ' tasks failed' END AS why
        FROM sellers s
        CROSS JOIN LATERAL (
            SELECT status, error_code, failed_tasks, completed_tasks, total_tasks, started_at, ended_at
            FROM crawling_schedule_executions
            WHERE seller_id = s.seller_id AND started_at >= :since
              AND status IN ('{ExecutionStatus.COMPLETED.value}', '{ExecutionStatus.FAILED.value}')
            UNION ALL
            -- One that could not even be planned has never started.
            SELECT status, error_code, failed_tasks, completed_tasks, total_tasks, started_at, ended_at
            FROM crawling_schedule_executions
            WHERE seller_id = s.seller_id AND started_at IS NULL AND status = '{ExecutionStatus.FAILED.value}'
            ORDER BY ended_at DESC NULLS LAST LIMIT 1
        ) AS e
        CROSS JOIN LATERAL (
            SELECT sum(failed_tasks) AS failed, sum(completed_tasks + failed_tasks) AS tasks
            FROM crawling_schedule_executions
            WHERE seller_id = s.seller_id AND started_at > e.started_at - interval '1 day'
              AND started_at <= e.started_at
              AND e.failed_tasks > {ONE_PRODUCT}
        ) AS day
        WHERE {ACTIVE} AND (e.status = '{ExecutionStatus.FAILED.value}'
                            OR (e.failed_tasks > 0 AND e.completed_tasks = 0)
                            OR 100.0 * (day.tasks - day.failed) < :percent * day.tasks)
    ) AS found
"""

# A seller is overdue if it has had no whole crawl for so many of its own intervals, counted from its registration if
# there was none. A crawl of chosen assets does not count: it did not read the listing.
_OVERDUE = f"""
    SELECT seller_id, since, seller_id || ' (' || {_DAY} || ')' AS name FROM (
        SELECT s.seller_id, coalesce(e.ended_at, s.created_at) AS since, s.interval_unit, s.interval_amount
        FROM sellers s
        LEFT JOIN LATERAL (
            SELECT ended_at FROM crawling_schedule_executions
            WHERE seller_id = s.seller_id AND status = '{ExecutionStatus.COMPLETED.value}' AND product_limit IS NULL
              AND listed_count IS NOT NULL
            ORDER BY started_at DESC LIMIT 1
        ) AS e ON true
        WHERE {ACTIVE}
    ) AS found
    WHERE since < :now - :intervals * CASE interval_unit WHEN 'DAYS' THEN make_interval(days => interval_amount)
                                                         ELSE make_interval(hours => interval_amount) END
"""


def held_deletions(connection: Connection) -> list[Held]:
    """Deletions that wait for a decision."""
    return [Held(*row) for row in connection.execute(_HELD_DELETIONS)]


def held_changes(connection: Connection) -> list[Held]:
    """Changes that are held back."""
    return [Held(*row) for row in connection.execute(_HELD_CHANGES)]


def sweeps(connection: Connection, since: datetime) -> list[Sweep]:
    """The newest sweep since then of each active seller."""
    return [Sweep(*row) for row in connection.execute(_SWEEPS, {"since": since, "counted": True})]


def incomplete_sweeps(connection: Connection, since: datetime) -> list[str]:
    """Sellers whose newest sweep did not see the whole listing."""
    rows = connection.execute(_SWEEPS, {"since": since, "counted": False})
    return [row.seller_id for row in rows if not row.complete]


def failed_events(connection: Connection) -> int:
    """The number of FAILED events, which are not retried."""
    return connection.execute(_FAILED).scalar_one()


def unsent_events(connection: Connection) -> Backlog:
    """Unsent events, and since when the oldest change in them has waited."""
    return Backlog(*connection.execute(_BACKLOG).one())


def failed_schedules(connection: Connection) -> list[str]:
    """Sellers whose schedule EventBridge did not accept."""
    return list(connection.execute(_FAILED_SCHEDULES).scalars())


def alerts_of_inactive_sellers(connection: Connection, kind: str, before: str) -> list[str]:
    """Subjects of open alerts that end in the id of a seller that is inactive or unknown."""
    return list(connection.execute(_OF_INACTIVE_SELLERS, {"kind": kind, "before": before}).scalars())


def pool(connection: Connection) -> PoolState:
    """Why calls to the marketplace are stopped; empty if no pool has worked yet."""
    row = connection.execute(_POOL).one_or_none()
    return PoolState(None, None) if row is None else PoolState(*row)


def failing(connection: Connection, since: datetime, percent: float, most: int) -> Ailing:
    """Active sellers whose last crawl failed, or had failed tasks that are too many of the day's; oldest first."""
    return _ailing(connection, _FAILING, most, {"since": since, "percent": percent})


def overdue(connection: Connection, now: datetime, intervals: float, most: int) -> Ailing:
    """Active sellers whose last whole crawl is too old; oldest first."""
    return _ailing(connection, _OVERDUE, most, {"now": now, "intervals": intervals})


def _ailing(connection: Connection, query: str, most: int, values: dict[str, object]) -> Ailing:
    row = connection.execute(text(_NAMED.format(most=int(most), ailing=query)), values).one()
    return Ailing(tuple(row.names or ()), row.number, row.first)
