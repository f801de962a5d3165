"""Rows in any state, put straight into the tables."""

from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Connection, text

from mustit_pipeline.crawling.sql import task_months
from mustit_pipeline.crawling.sql.tasks import TaskHome
from mustit_pipeline.domain.states import ExecutionStatus, OutboxStatus, RawStatus, TaskStatus
from mustit_pipeline.foundation.database import Database
from mustit_pipeline_tests.integration.crawls import register

MONTH = date(2026, 11, 1)
SELLER = "dmont"
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Ground:
    """A registered seller with one execution, and the partition for its tasks."""

    database: Database
    home: TaskHome

    def scalar(self, query: str, **values: Any) -> Any:
        with self.database.reading() as connection:
            return connection.execute(text(query), values).scalar()

    def statuses(self, table: str, key: str) -> dict[Any, str]:
        """The state of every row."""
        with self.database.reading() as connection:
            rows = connection.execute(text(f"SELECT {key}, status FROM {table}"))
            return {row[0]: row[1] for row in rows}


def ground(database: Database, status: ExecutionStatus = ExecutionStatus.RUNNING) -> Ground:
    """A seller and an execution in that state."""
    register(database, SELLER)
    with database.transaction() as connection:
        task_months.ensure_month(connection, MONTH)
        home = TaskHome(add_execution(connection, status), SELLER, MONTH)
    return Ground(database, home)


def add_execution(connection: Connection, status: ExecutionStatus, seller: str = SELLER) -> UUID:
    """An execution in that state."""
    query = text("""
        INSERT INTO crawling_schedule_executions (execution_id, seller_id, schedule_id, status, triggered_by,
                                                  task_month, sweep_status)
        SELECT :id, seller_id, schedule_id, :status, 'test', :month, 'PENDING' FROM crawling_schedules
        WHERE seller_id = :seller
    """)
    execution_id = uuid4()
    values = {"id": execution_id, "status": status.value, "month": MONTH, "seller": seller}
    connection.execute(query, values)
    return execution_id


def add_task(
    connection: Connection, home: TaskHome, status: TaskStatus, item_no: int, *, expires: str = "1 minute"
) -> UUID:
    """An option task in that state, counted in its execution; a leased one has lease_no 1."""
    leased = status is TaskStatus.IN_PROGRESS
    values = {
        "month": home.task_month,
        "id": uuid4(),
        "execution": home.execution_id,
        "seller": home.seller_id,
        "key": f"PRODUCT_OPTION:{item_no}",
        "item": item_no,
        "status": status.value,
        "owner": "another worker" if leased else None,
        "expires": expires if leased else None,
    }
    insert = text("""
        INSERT INTO crawler_tasks (task_month, task_id, execution_id, seller_id, task_type, task_key, item_no,
                                   request_url, status, priority, lease_owner, lease_no, lease_expires_at)
        VALUES (:month, :id, :execution, :seller, 'PRODUCT_OPTION', :key, :item, '/auction_products/1/options',
                :status, 10, :owner, 1, now() + CAST(:expires AS interval))
    """)
    connection.execute(insert, values)
    count = text("""
        UPDATE crawling_schedule_executions SET total_tasks = total_tasks + 1,
               completed_tasks = completed_tasks + CASE WHEN :status = 'COMPLETED' THEN 1 ELSE 0 END,
               failed_tasks = failed_tasks + CASE WHEN :status = 'FAILED' THEN 1 ELSE 0 END
        WHERE execution_id = :execution
    """)
    connection.execute(count, {"status": status.value, "execution": home.execution_id})
    return values["id"]


def add_outbox(connection: Connection, status: OutboxStatus, item_no: int, version: int = 1) -> UUID:
    """A product with that version in its history, and the version's outbox row in that state."""
    sending = status is OutboxStatus.SENDING
    product = text("""
        INSERT INTO products (seller_id, item_no, version) VALUES (:seller, :item, :version)
        ON CONFLICT (seller_id, item_no) DO UPDATE SET version = greatest(products.version, excluded.version)
    """)
    change_set = text("""
        INSERT INTO product_change_sets (seller_id, item_no, version, life_cycle, change_types, changes, product_data,
                                         execution_id)
        VALUES (:seller, :item, :version, 'UPDATED', '{}', '[]', '{}', gen_random_uuid())
    """)
    outbox = text("""
        INSERT INTO product_outbox (outbox_id, seller_id, item_no, version, event_type, idempotency_key, status,
                                    lease_no, lease_owner, lease_expires_at)
        VALUES (:id, :seller, :item, :version, 'PRODUCT_UPDATED', :key, :status, 1, :owner,
                now() + CAST(:expires AS interval))
    """)
    values = {
        "id": uuid4(),
        "seller": SELLER,
        "item": item_no,
        "version": version,
        "key": f"{SELLER}:{item_no}:{version}",
        "status": status.value,
        "owner": "another worker" if sending else None,
        "expires": "-1 minute" if sending else None,
    }
    for statement in (product, change_set, outbox):
        connection.execute(statement, values)
    return values["id"]


def add_raw(connection: Connection, status: RawStatus, item_no: int) -> int:
    """A body in that state."""
    query = text("""
        INSERT INTO product_raw_data (seller_id, execution_id, task_id, source, item_no, body, status)
        VALUES (:seller, gen_random_uuid(), gen_random_uuid(), 'PRODUCT_OPTION', :item, '[]', :status) RETURNING raw_id
    """)
    return connection.execute(query, {"seller": SELLER, "item": item_no, "status": status.value}).scalar_one()
