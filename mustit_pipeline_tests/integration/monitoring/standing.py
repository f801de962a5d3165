"""Sellers, crawls, products and events whose times and outcomes a test chooses."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import orjson
from sqlalchemy import text

from mustit_pipeline.foundation.database import Database
from mustit_pipeline.monitoring.criteria import CRITERIA, Judgement
from mustit_pipeline.settings import Settings
from mustit_pipeline_tests.integration.crawls import register

NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
WHOLE = {
    "name": "가방",
    "brandName": "b",
    "category": {"header": {"code": "W", "name": "여성"}},
    "normalPrice": 3000,
    "sellingPrice": 2000,
    "discountPrice": 1000,
    "stock": 0,
    "images": ["i"],
}


@dataclass(frozen=True)
class Standing:
    """A database of sellers that were registered a month ago."""

    database: Database
    settings: Settings

    def write(self, statement: str, **values: Any) -> None:
        with self.database.transaction() as connection:
            connection.execute(text(statement), values)

    def sellers(self, *names: str, listed: int = 100) -> None:
        register(self.database, *names)
        self.write("UPDATE sellers SET created_at = :at, total_product_count = :n", at=NOW - 30 * DAY, n=listed)

    def crawl(self, seller: str, ago: timedelta, **columns: Any) -> UUID:
        """A crawl that took a minute; completed, with its whole listing seen, unless told otherwise."""
        values = {
            "execution_id": uuid4(),
            "status": "COMPLETED",
            "triggered_by": "test",
            "task_month": NOW.date().replace(day=1),
            "sweep_status": "COMPLETE",
            "listed_count": 100,
            "created_at": NOW - ago,
            "started_at": NOW - ago,
            "ended_at": NOW - ago + timedelta(minutes=1),
            "total_tasks": 10,
            "completed_tasks": 10,
        } | columns
        names = ", ".join(values)
        given = ", ".join(f":{name}" for name in values)
        self.write(
            f"INSERT INTO crawling_schedule_executions (seller_id, schedule_id, {names}) "
            f"SELECT seller_id, schedule_id, {given} FROM crawling_schedules WHERE seller_id = :seller",
            seller=seller,
            **values,
        )
        return values["execution_id"]

    def products(self, seller: str, items: range, *, complete: bool = True, age: timedelta = DAY * 2) -> None:
        self.write(
            """INSERT INTO products (seller_id, item_no, minishop_data_hash, detail_data_hash, option_data_hash,
                                     version, created_at)
               SELECT :seller, n, 'a', 'b', CASE WHEN :complete THEN 'c' END, CASE WHEN :complete THEN 1 ELSE 0 END, :at
               FROM unnest(CAST(:items AS bigint[])) n""",
            seller=seller,
            items=list(items),
            complete=complete,
            at=NOW - age,
        )

    def version(
        self, seller: str, item: int, ago: timedelta = HOUR, data: dict[str, Any] | None = None, **price: int
    ) -> None:
        """A version in the history; with old and new it is a change of the selling price."""
        changes = [{"type": "PRICE", "field": "sellingPrice"} | price] if price else []
        self.write(
            """INSERT INTO product_change_sets (seller_id, item_no, version, life_cycle, change_types, changes,
                                                product_data, execution_id, detected_at)
               VALUES (:seller, :item, 1, 'UPDATED', :types, CAST(:changes AS jsonb), :data, :execution, :at)""",
            seller=seller,
            item=item,
            types=["PRICE"] if price else [],
            changes=orjson.dumps(changes).decode(),
            data=orjson.dumps(WHOLE | (data or {})).decode(),
            execution=uuid4(),
            at=NOW - ago,
        )

    def event(
        self,
        item: int,
        status: str,
        made: timedelta,
        done: timedelta | None = None,
        *,
        version: int = 1,
        superseded: bool = False,
    ) -> None:
        self.write(
            """INSERT INTO product_outbox (outbox_id, seller_id, item_no, version, event_type, idempotency_key, status,
                                           created_at, completed_at, lease_owner, superseded_by)
               VALUES (:id, 'dmont', :item, :version, 'PRODUCT_UPDATED', :key, :status, :made, :done,
                       CASE WHEN :status = 'SENDING' THEN 'x' END, CASE WHEN :superseded THEN CAST(:id AS uuid) END)""",
            id=uuid4(),
            item=item,
            version=version,
            key=f"k{item}:{version}",
            status=status,
            made=NOW - made,
            done=None if done is None else NOW - done,
            superseded=superseded,
        )

    def judge(self, name: str) -> Judgement:
        [criterion] = [one for one in CRITERIA if one.name == name]
        with self.database.reading() as connection:
            return criterion.judge(connection, self.settings, NOW)
