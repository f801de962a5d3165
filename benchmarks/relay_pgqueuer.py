"""The same events as jobs of pgqueuer, each one POST."""

import asyncio
from datetime import timedelta

import aiohttp
import asyncpg
import uvloop
from pgqueuer.core.qm import QueueManager
from pgqueuer.db import AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from benchmarks.job import Outcome, Stopwatch
from benchmarks.relay_job import RelayJob, body_of, contend, key_of

ENTRYPOINT = "send"
ENQUEUED_AT_ONCE = 1000
BATCH = 100
# Of those that may be under way: with as many as places it stands still between two claims (measured), and without a
# limit it would pick the whole queue.
PICKED_PER_PLACE = 10
CONNECTIONS = 4


def send(job: RelayJob) -> Outcome:
    """Enqueue, then drain the queue."""
    return uvloop.run(_send(job))


async def _send(job: RelayJob) -> Outcome:
    async with asyncpg.create_pool(job.database_url, min_size=CONNECTIONS, max_size=CONNECTIONS) as pool:
        queries = Queries(AsyncpgPoolDriver(pool))
        await queries.install()
        for first in range(1, job.events + 1, ENQUEUED_AT_ONCE):
            items = range(first, min(first + ENQUEUED_AT_ONCE, job.events + 1))
            await queries.enqueue(
                [ENTRYPOINT] * len(items),
                [body_of(item) for item in items],
                [0] * len(items),
                headers=[{"Idempotency-Key": key_of(item)} for item in items],
            )
        await pool.execute("ANALYZE")
        connector = aiohttp.TCPConnector(limit=job.in_flight)
        async with aiohttp.ClientSession(connector=connector) as session:
            return await _drained(job, queries, session)


async def _drained(job: RelayJob, queries: Queries, session: aiohttp.ClientSession) -> Outcome:
    """Its own limit bounds what it has picked; the places in flight are given here."""
    places = asyncio.Semaphore(job.in_flight)
    manager = QueueManager(queries)
    left = job.events

    @manager.entrypoint(ENTRYPOINT)
    async def post(task: Job) -> None:
        nonlocal left
        headers = {"Content-Type": "application/json", **(task.headers or {})}
        async with places, session.post(job.address, data=task.payload, headers=headers) as response:
            await response.read()
            response.raise_for_status()
        left -= 1
        if not left:
            manager.shutdown.set()

    watch = Stopwatch()
    await manager.run(
        batch_size=BATCH,
        dequeue_timeout=timedelta(seconds=1),
        max_concurrent_tasks=max(2 * BATCH, PICKED_PER_PLACE * job.in_flight),
    )
    return watch.outcome()


if __name__ == "__main__":
    contend(send)
