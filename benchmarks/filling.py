"""A database filled to any size: rows of one seller that was really crawled, multiplied under other names and times.

Everything that has to fit together still does: ids, item numbers, keys and addresses of calls, times and months. Texts
are copied as they are stored, compressed, and go on naming the product that they were fetched for.
"""

import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, Table, text

from mustit_pipeline.catalog.sql.tables import product_change_sets, product_raw_data, products
from mustit_pipeline.crawling.sql import task_months
from mustit_pipeline.crawling.sql.tables import (
    crawler_tasks,
    crawling_schedule_executions,
    recrawl_products,
    recrawl_sellers,
)
from mustit_pipeline.domain.schedule import CrawlingSchedule
from mustit_pipeline.domain.seller import Seller
from mustit_pipeline.domain.values import CrawlingInterval, IntervalUnit, ScheduleId, SellerId
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.outbox.sql.tables import product_outbox
from mustit_pipeline.sellers.sql import sellers

# So long ago that no seller is overdue by an interval of a month, and every day that is asked for knows every seller.
REGISTERED_DAYS_AGO = 45
MONTHLY = CrawlingInterval(30, IntervalUnit.DAYS)
# A copy's last crawl was 2 to 26 days ago, each one before it 12 days earlier: the windows of the hourly checks hold as
# much at every size, and the tasks lie in several months.
NEWEST_DAYS, SPREAD_DAYS, APART_DAYS = 2, 25, 12
COPIES_AT_ONCE = 10
# Beyond every item number that the simulated marketplace gives.
ITEMS_APART = 1_000_000_000

_AGO = f"""make_interval(days => {NEWEST_DAYS} + c.n * 7 % {SPREAD_DAYS} + {APART_DAYS} * e.later,
                         secs => c.n * 37 % 36000)"""
_ITEM = f"r.item_no + (c.n + 1) * CAST({ITEMS_APART} AS bigint)"
_COPIES = """(SELECT n, 'stored' || lpad(CAST(n AS text), 5, '0') AS seller_id
              FROM generate_series(CAST(:first AS int), :last) n) c"""


def _other(column: str) -> str:
    return f"CAST(md5(c.n || ':' || {column}) AS uuid)"


def _earlier(*columns: str) -> dict[str, str]:
    return {column: f"r.{column} - {_AGO}" for column in columns}


@dataclass(frozen=True, slots=True)
class _Copied:
    """How a table's rows become another seller's; columns that are not named stay as they are."""

    table: Table
    changed: Mapping[str, str]
    source: str = "JOIN pattern.executions e USING (execution_id)"
    only: str = "true"

    @property
    def statement(self) -> str:
        names = [
            column.name
            for column in self.table.columns
            if column.computed is None and column.identity is None and column.name != "seq"
        ]
        values = ", ".join(self.changed.get(name, f"r.{name}") for name in names)
        return f"""
            INSERT INTO {self.table.name} ({", ".join(names)}) SELECT {values}
            FROM pattern.{self.table.name} r {self.source} CROSS JOIN {_COPIES} WHERE {self.only}
        """


_OF_COPY = {"seller_id": "c.seller_id", "execution_id": _other("r.execution_id")}
_LAST = "CROSS JOIN (SELECT * FROM pattern.executions WHERE later = 0) e"
_FIRST_AGO = _AGO.replace("e.later", "(SELECT max(later) FROM pattern.executions)")

_TABLES = (
    _Copied(
        crawling_schedule_executions,
        _OF_COPY
        | _earlier("created_at", "started_at", "ended_at", "updated_at")
        | {
            "schedule_id": "(SELECT schedule_id FROM crawling_schedules s WHERE s.seller_id = c.seller_id)",
            "task_month": f"date_trunc('month', r.created_at - {_AGO})",
        },
    ),
    _Copied(
        crawler_tasks,
        _OF_COPY
        | _earlier("available_at", "created_at", "published_at", "started_at", "completed_at")
        | {
            "task_month": f"date_trunc('month', e.created_at - {_AGO})",
            "task_id": _other("r.task_id"),
            "item_no": _ITEM,
            "task_key": f"coalesce(r.task_type || ':' || {_ITEM}, r.task_key)",
            "request_url": f"""coalesce(replace(r.request_url, '/' || r.item_no || '/', '/' || {_ITEM} || '/'),
                                        replace(r.request_url, 'sellerId=' || r.seller_id, 'sellerId=' || c.seller_id))
            """,
        },
    ),
    _Copied(
        product_raw_data,
        _OF_COPY | _earlier("fetched_at", "processed_at") | {"task_id": _other("r.task_id"), "item_no": _ITEM},
        only="c.n % :bodies_every = 0",
    ),
    _Copied(
        products,
        _earlier("last_seen_at", "deleted_at", "updated_at")
        | {
            "product_id": _other("r.product_id"),
            "seller_id": "c.seller_id",
            "item_no": _ITEM,
            "last_seen_execution_id": _other("r.last_seen_execution_id"),
            "created_at": f"r.created_at - {_FIRST_AGO}",
        },
        source=_LAST,
    ),
    _Copied(
        recrawl_products,
        {"seller_id": "c.seller_id", "item_no": _ITEM}
        | {
            column: f"r.{column} - make_interval(mins => c.n % 1200)"
            for column in ("detail_fetched_at", "option_fetched_at")
        },
        source="",
    ),
    _Copied(
        product_change_sets,
        _OF_COPY | _earlier("detected_at") | {"change_set_id": _other("r.change_set_id"), "item_no": _ITEM},
    ),
    _Copied(
        product_outbox,
        _earlier("failing_since", "next_attempt_at", "occurred_at", "created_at", "completed_at")
        | {
            "outbox_id": _other("r.outbox_id"),
            "event_id": _other("r.event_id"),
            "superseded_by": _other("r.superseded_by"),
            "seller_id": "c.seller_id",
            "item_no": _ITEM,
            "idempotency_key": f"c.seller_id || ':' || {_ITEM} || ':' || r.version",
        },
        source="""JOIN pattern.product_change_sets v USING (seller_id, item_no, version)
                  JOIN pattern.executions e ON e.execution_id = v.execution_id""",
    ),
)

# Of the bodies those that a night's maintenance leaves: the newest of each content.
_KEPT_BODIES = """
    DELETE FROM pattern.product_raw_data r USING pattern.product_raw_data newer
    WHERE (newer.source, newer.status) = (r.source, r.status) AND newer.raw_id > r.raw_id
      AND (newer.item_no, newer.page_no) IS NOT DISTINCT FROM (r.item_no, r.page_no)
      AND newer.content_hash = r.content_hash
"""

_EXECUTIONS = """
    CREATE TABLE pattern.executions AS
    SELECT execution_id, created_at, CAST(row_number() OVER (ORDER BY created_at DESC) - 1 AS int) AS later
    FROM pattern.crawling_schedule_executions
"""

# What is known of a seller is one row, whatever is stored of it: every registered one has it from the start.
_KNOWN = f"""
    INSERT INTO recrawl_sellers ({", ".join(column.name for column in recrawl_sellers.columns)})
    SELECT {
    ", ".join(
        {
            "seller_id": "s.seller_id",
            "swept_at": "r.swept_at - make_interval(mins => 120 + CAST(ascii(md5(s.seller_id)) AS int))",
            "oldest_at": "r.oldest_at - make_interval(mins => 120 + CAST(ascii(md5(s.seller_id)) AS int))",
        }.get(column.name, f"r.{column.name}")
        for column in recrawl_sellers.columns
    )
}
    FROM recrawl_sellers r CROSS JOIN sellers s
    WHERE r.seller_id = :seller_id AND s.seller_id LIKE 'stored%'
    ON CONFLICT (seller_id) DO NOTHING
"""

_CRAWLED = """
    UPDATE crawling_schedules s SET last_triggered_at = e.started_at, next_due_at = e.started_at + interval '30 days'
    FROM (SELECT seller_id, max(started_at) AS started_at FROM crawling_schedule_executions GROUP BY seller_id) e
    WHERE e.seller_id = s.seller_id AND s.seller_id = ANY(:sellers)
"""

_COUNTED = """
    UPDATE sellers SET total_product_count = :products, updated_at = now() WHERE seller_id = ANY(:sellers)
"""


def seller_name(number: int) -> str:
    """The seller that a copy belongs to."""
    return f"stored{number:05}"


def register_sellers(database: Database, number: int, waiting_from: int, now: datetime) -> None:
    """As many sellers as are ever registered; those that copies never reach are due, at every size."""
    registered = now - timedelta(days=REGISTERED_DAYS_AGO)
    entries: list[tuple[Seller, CrawlingSchedule]] = []
    for n in range(number):
        seller_id = SellerId(seller_name(n))
        due_at = registered if n >= waiting_from else now + timedelta(days=30)
        schedule = CrawlingSchedule(id=ScheduleId.new(), seller_id=seller_id, interval=MONTHLY, next_due_at=due_at)
        entries.append((Seller.register(seller_id, seller_id.value, registered, MONTHLY), schedule))
    with database.transaction() as connection:
        sellers.add_new(connection, entries)


class Filler:
    """Multiplies what is stored of one seller."""

    def __init__(
        self, database: Database, seller_id: str, products: int, bodies_every: int, only: Collection[Table] = ()
    ) -> None:
        self._database = database
        self._products = products
        self._bodies_every = bodies_every
        self._copies = 0
        # The tables that are filled: all, unless some are named.
        self._filled = [copied for copied in _TABLES if not only or copied.table in only]
        with database.transaction() as connection:
            connection.exec_driver_sql("CREATE SCHEMA pattern")
            for copied in _TABLES:
                name = copied.table.name
                query = text(f"CREATE TABLE pattern.{name} AS SELECT * FROM {name} WHERE seller_id = :seller_id")
                connection.execute(query, {"seller_id": seller_id})
            connection.execute(text(_KNOWN), {"seller_id": seller_id})
            connection.exec_driver_sql(_EXECUTIONS)
            connection.exec_driver_sql(_KEPT_BODIES)
            self._make_months(connection)

    def fill(self, products: int) -> float:
        """Copies until so many products are stored; returns the seconds that it took."""
        start, wanted = time.perf_counter(), products // self._products
        while self._copies < wanted:
            last = min(self._copies + COPIES_AT_ONCE, wanted) - 1
            names = [seller_name(n) for n in range(self._copies, last + 1)]
            with self._database.transaction() as connection:
                # No commit waits for the disk between two batches of rows that can be made again.
                connection.exec_driver_sql("SET LOCAL synchronous_commit = off")
                for copied in self._filled:
                    values = {"first": self._copies, "last": last}
                    if ":bodies_every" in copied.only:
                        values["bodies_every"] = self._bodies_every
                    connection.execute(text(copied.statement), values)
                self._settle(connection, names)
            self._copies = last + 1
            if self._copies % 100 == 0:
                told = f"{self._copies * self._products:,} products stored"
                print(f"{told} after {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
        return time.perf_counter() - start

    def _settle(self, connection: Connection, names: Sequence[str]) -> None:
        connection.execute(text(_COUNTED), {"products": self._products, "sellers": list(names)})
        connection.execute(text(_CRAWLED), {"sellers": list(names)})

    def _make_months(self, connection: Connection) -> None:
        crawls = connection.execute(text("SELECT count(*) FROM pattern.executions")).scalar_one()
        days = NEWEST_DAYS + SPREAD_DAYS + APART_DAYS * crawls
        query = text("""
            SELECT DISTINCT CAST(date_trunc('month', now() - make_interval(days => d)) AS date)
            FROM generate_series(0, :days) d
        """)
        for month in connection.execute(query, {"days": days}).scalars().all():
            task_months.ensure_month(connection, month)
