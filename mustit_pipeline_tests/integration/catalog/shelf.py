"""A seller whose bodies a test writes itself: executions, listings, details and options without any fetching."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from sqlalchemy import text

from mustit_pipeline.catalog.canonical import Content
from mustit_pipeline.catalog.deletion import delete_confirmed
from mustit_pipeline.catalog.processing import USUAL_BATCH, BatchSize, ProcessingReport, process
from mustit_pipeline.catalog.sql import products, raw
from mustit_pipeline.catalog.sql.raw import NewRaw
from mustit_pipeline.crawling.sql.executions import StoredExecution
from mustit_pipeline.crawling.steering import open_or_join
from mustit_pipeline.domain.states import TaskType
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.database import Database
from mustit_pipeline_tests.integration.crawls import register
from mustit_pipeline_tests.unit.marketplace import bodies

Row = dict[str, Any]


def utc_now() -> datetime:
    return datetime.now(UTC)


class Shelf:
    """One registered seller and the execution that is open for it."""

    def __init__(self, database: Database, seller_id: str = "dmont") -> None:
        self.database = database
        self.seller_id = seller_id
        register(database, seller_id)
        self.stored = self.open()

    def open(self) -> StoredExecution:
        """Open the next execution, whose sweep is still under way."""
        self.stored = open_or_join(self.database, SellerId(self.seller_id), triggered_by="test", now=utc_now()).stored
        self._set("status = 'RUNNING', listed_count = 0")
        return self.stored

    def swept(self) -> None:
        """Every page has been seen; products are still being fetched."""
        self._set("sweep_status = 'COMPLETE'")

    def end(self) -> None:
        """Everything planned has ended."""
        self._set("sweep_status = 'COMPLETE', status = 'COMPLETED', ended_at = now()")

    def listing(self, *items: int, fetched_at: datetime | None = None, **changes: Any) -> None:
        """A listing page arrives; each item is named after its number unless changed."""
        entries = [bodies.listing_item(**{"itemNo": item, "name": f"상품 {item}"} | changes) for item in items]
        seen_at = fetched_at or utc_now()
        with self.database.transaction() as connection:
            products.sight(connection, self.seller_id, self.stored.home.execution_id, dict.fromkeys(items, seen_at))
        body = bodies.encoded(bodies.listing(*entries, count=len(items)))
        self.put(TaskType.MINISHOP, None, body, fetched_at=seen_at)

    def detail(self, item: int, **changes: Any) -> None:
        """A detail arrives, and its task has ended well."""
        home = self.stored.home
        self.change(
            """INSERT INTO crawler_tasks (task_month, task_id, execution_id, seller_id, task_type, task_key, item_no,
                                          request_url, status, priority)
               VALUES (:month, gen_random_uuid(), :execution, :seller, 'PRODUCT_DETAIL', :key, :item,
                       '/', 'COMPLETED', 1)
               ON CONFLICT DO NOTHING""",
            month=home.task_month,
            execution=home.execution_id,
            seller=self.seller_id,
            key=f"PRODUCT_DETAIL:{item}",
            item=item,
        )
        info = bodies.info(**{"itemNo": item, "itemName": f"상품 {item}", "sellerId": self.seller_id} | changes)
        self.put(TaskType.PRODUCT_DETAIL, item, bodies.encoded(bodies.detail(ProductInfoModule=info)))

    def options(self, item: int, *options: dict[str, Any]) -> None:
        """Options arrive; none unless given."""
        listed = [bodies.option(**{"itemNo": item} | option) for option in options]
        self.put(TaskType.PRODUCT_OPTION, item, bodies.encoded(listed))

    def put(
        self,
        source: TaskType,
        item: int | None,
        body: bytes,
        content: Content | None = None,
        fetched_at: datetime | None = None,
    ) -> None:
        """Any body, as if it had been fetched; with what it says where the worker has read that already."""
        page = 0 if item is None else None
        said = (None, None) if content is None else (content.text, content.hash)
        execution_id, at = self.stored.home.execution_id, fetched_at or utc_now()
        row = NewRaw(self.seller_id, execution_id, uuid4(), source, item, page, body.decode(), at, *said)
        with self.database.transaction() as connection:
            raw.add(connection, [row])

    def crawl(self, *items: int, **changes: Any) -> ProcessingReport:
        """A whole execution that sees these items, complete and without options, and is processed."""
        if self.rows("SELECT 1 FROM crawling_schedule_executions WHERE status = 'COMPLETED' AND execution_id = :e"):
            self.open()
        self.listing(*items)
        for item in items:
            self.detail(item, **changes)
            self.options(item)
        self.swept()
        report = self.process()
        self.end()
        return report

    def process(
        self, batch: BatchSize = USUAL_BATCH, progress: Callable[[ProcessingReport], None] | None = None
    ) -> ProcessingReport:
        return process(self.database, SellerId(self.seller_id), now=utc_now, batch=batch, progress=progress)

    def delete(self, *items: int) -> int:
        """These were absent from two complete sweeps, and their detail page is gone."""
        self.change("UPDATE products SET absent_sweeps = 2 WHERE item_no = ANY(:items)", items=list(items))
        with self.database.transaction() as connection:
            return delete_confirmed(connection, self.stored.execution, items, sweeps=2, at=utc_now())

    def rows(self, query: str, **values: Any) -> list[Row]:
        """Look into the database; :e is the execution, :s the seller."""
        values = {"e": self.stored.home.execution_id, "s": self.seller_id} | values
        used = {name: value for name, value in values.items() if f":{name}" in query}
        with self.database.reading() as connection:
            return [dict(row) for row in connection.execute(text(query), used).mappings()]

    def change(self, statement: str, **values: Any) -> int:
        """Change the database behind everybody's back."""
        with self.database.transaction() as connection:
            return connection.execute(text(statement), values).rowcount

    def versions(self, item: int) -> list[tuple[int, str]]:
        """The history of a product."""
        query = "SELECT version, life_cycle FROM product_change_sets WHERE item_no = :item AND seller_id = :s"
        return [(row["version"], row["life_cycle"]) for row in self.rows(query + " ORDER BY version", item=item)]

    def outbox(self, item: int) -> list[Row]:
        """The outbox rows of a product, oldest version first."""
        return self.rows(
            "SELECT * FROM product_outbox WHERE item_no = :item AND seller_id = :s ORDER BY version", item=item
        )

    def _set(self, values: str) -> None:
        query = f"UPDATE crawling_schedule_executions SET {values} WHERE execution_id = :e"
        self.change(query, e=self.stored.home.execution_id)


def assert_whole(database: Database) -> None:
    """Every version has its change set and its outbox row, and there is none without a version."""
    query = text("""
        SELECT p.seller_id, p.item_no, p.version,
               ARRAY(SELECT c.version FROM product_change_sets c
                     WHERE (c.seller_id, c.item_no) = (p.seller_id, p.item_no) ORDER BY 1) AS sets,
               ARRAY(SELECT o.version FROM product_outbox o
                     WHERE (o.seller_id, o.item_no) = (p.seller_id, p.item_no) ORDER BY 1) AS rows
        FROM products p
    """)
    strays = text("""
        SELECT (SELECT count(*) FROM product_change_sets) + (SELECT count(*) FROM product_outbox)
             - (SELECT coalesce(2 * sum(version), 0) FROM products)
    """)
    with database.reading() as connection:
        for row in connection.execute(query):
            expected = list(range(1, row.version + 1))
            assert row.sets == expected, row
            assert row.rows == expected, row
        assert connection.execute(strays).scalar_one() == 0
