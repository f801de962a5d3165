"""The item pipeline: one connection, an upsert per product that writes only what changed, a commit per hundred."""

from typing import Any, Self

import psycopg

from benchmarks.reading import encoded, product

BATCH = 100

SCHEMA = """
    CREATE TABLE IF NOT EXISTS products (item_no bigint PRIMARY KEY, hash text, data text, version int);
    CREATE TABLE IF NOT EXISTS changes (item_no bigint, version int);
"""
_UPSERT = """
    INSERT INTO products AS p (item_no, hash, data, version) VALUES (%s, %s, %s, 1)
    ON CONFLICT (item_no) DO UPDATE SET hash = excluded.hash, data = excluded.data, version = p.version + 1
    WHERE p.hash IS DISTINCT FROM excluded.hash
    RETURNING version
"""


class PostgresPipeline:
    """Stores items as they come."""

    def __init__(self, database_url: str) -> None:
        self._connection = psycopg.connect(database_url)
        self._uncommitted = 0

    @classmethod
    def from_crawler(cls, crawler: Any) -> Self:
        return cls(crawler.settings["DATABASE_URL"])

    def process_item(self, item: dict[str, Any]) -> dict[str, Any]:
        content, digest = encoded(product(item["listed"], item["detail"], item["options"]))
        number = item["listed"]["itemNo"]
        written = self._connection.execute(_UPSERT, (number, digest, content.decode())).fetchone()
        if written is not None:
            self._connection.execute("INSERT INTO changes VALUES (%s, %s)", (number, written[0]))
        self._uncommitted += 1
        if self._uncommitted >= BATCH:
            self._commit()
        return item

    def close_spider(self) -> None:
        self._commit()
        self._connection.close()

    def _commit(self) -> None:
        self._connection.commit()
        self._uncommitted = 0
