"""The limit version: what a crawl costs without ledger, leases, limits, versions or outbox."""

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp
import asyncpg
import orjson
from yarl import URL

from benchmarks.job import Job, Outcome, Stopwatch, contend
from benchmarks.reading import encoded, product

AGENT = "Mozilla/5.0 (X11; Linux x86_64) limit"
BATCH = 250

_SCHEMA = """
    CREATE TABLE IF NOT EXISTS raw (item_no bigint, source text, body text);
    CREATE TABLE IF NOT EXISTS products (item_no bigint PRIMARY KEY, hash text, data text, version int);
    CREATE TABLE IF NOT EXISTS changes (item_no bigint, version int);
"""
_UPDATE = """
    UPDATE products p SET hash = n.hash, data = n.data, version = p.version + 1
    FROM unnest($1::bigint[], $2::text[], $3::text[]) AS n(item_no, hash, data) WHERE p.item_no = n.item_no
"""

Found = tuple[int, str, str, bytes, bytes]


class Store:
    """Writes whole batches by COPY while the next ones are being fetched."""

    def __init__(self, connection: Any, known: dict[int, str]) -> None:
        self._connection = connection
        self._known = known
        self._batch: list[Found] = []
        self._writing: asyncio.Task[None] | None = None

    async def add(self, found: Found) -> None:
        """Keep what is new or different."""
        if self._known.get(found[0]) == found[1]:
            return
        self._batch.append(found)
        if len(self._batch) >= BATCH:
            await self.flush()

    async def flush(self) -> None:
        """Hand the batch over; waits only while the one before is still being written."""
        batch, self._batch = self._batch, []
        while self._writing is not None:
            await asyncio.shield(self._writing)
        self._writing = asyncio.create_task(self._write(batch))

    async def close(self) -> None:
        """The last commit."""
        await self.flush()
        if self._writing is not None:
            await self._writing

    async def _write(self, batch: list[Found]) -> None:
        try:
            new = [found for found in batch if found[0] not in self._known]
            old = [found for found in batch if found[0] in self._known]
            async with self._connection.transaction():
                bodies = [(item, "detail", detail.decode()) for item, _, _, detail, _ in batch]
                bodies += [(item, "options", options.decode()) for item, _, _, _, options in batch]
                await self._connection.copy_records_to_table("raw", records=bodies)
                if new:
                    rows = [(item, digest, data, 1) for item, digest, data, _, _ in new]
                    await self._connection.copy_records_to_table("products", records=rows)
                if old:
                    await self._connection.execute(_UPDATE, *map(list, list(zip(*old, strict=True))[:3]))
                changes = [(found[0], 2 if found[0] in self._known else 1) for found in batch]
                await self._connection.copy_records_to_table("changes", records=changes)
        finally:
            self._writing = None


async def _crawl(job: Job) -> Outcome:
    connection = await asyncpg.connect(job.database_url)
    await connection.execute(_SCHEMA)
    # Those of this crawl are read back.
    await connection.execute("TRUNCATE changes")
    connector = aiohttp.TCPConnector(limit=job.concurrency, use_dns_cache=True)
    async with aiohttp.ClientSession(
        connector=connector, cookie_jar=aiohttp.DummyCookieJar(), skip_auto_headers=("Accept", "Accept-Encoding")
    ) as session:
        watch = Stopwatch()
        headers = {"User-Agent": AGENT}
        async with session.get(job.base_url + "/", headers=headers) as answer:
            cookies = {name: cookie.value for name, cookie in answer.cookies.items()}
        headers["Authorization"] = f"Bearer {cookies['token']}"
        headers["Cookie"] = f"nid={cookies['nid']}; mustit_uid={cookies['mustit_uid']}"

        async def get(url: str) -> bytes:
            async with session.get(URL(url, encoded=True), headers=headers) as answer:
                answer.raise_for_status()
                return await answer.read()

        known = {row["item_no"]: row["hash"] for row in await connection.fetch("SELECT item_no, hash FROM products")}
        store = Store(connection, known)
        await _fetch_all(job, get, store)
        await store.close()
        outcome = watch.outcome()
    return await _read_back(connection, outcome, job)


async def _fetch_all(job: Job, get: Callable[[str], Any], store: Store) -> None:
    count = orjson.loads(await get(job.listing(0, 1)))["count"]
    pages = await asyncio.gather(*(get(job.listing(page_no)) for page_no in job.pages(count)))
    waiting = iter({item["itemNo"]: item for page in pages for item in orjson.loads(page)["items"]}.values())
    del pages

    async def work() -> None:
        for listed in waiting:
            item_no: int = listed["itemNo"]
            detail = await get(job.detail(item_no))
            options = await get(job.options(item_no))
            content, digest = encoded(product(listed, orjson.loads(detail), orjson.loads(options)))
            await store.add((item_no, digest, content.decode(), detail, options))

    await asyncio.gather(*(work() for _ in range(job.concurrency)))


async def _read_back(connection: Any, outcome: Outcome, job: Job) -> Outcome:
    rows = await connection.fetch("SELECT item_no FROM changes")
    items = [row["item_no"] for row in rows]
    outcome.products = await connection.fetchval("SELECT count(*) FROM products")
    outcome.created, outcome.changed = (items, []) if job.first else ([], items)
    await connection.close()
    return outcome


if __name__ == "__main__":
    contend(lambda job: asyncio.run(_crawl(job)))
