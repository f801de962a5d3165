"""The same events as jobs of procrastinate, each one POST."""

import logging

import aiohttp
import procrastinate
import uvloop
from procrastinate.types import JSONDict

from benchmarks.job import Outcome, Stopwatch
from benchmarks.relay_job import RelayJob, body_of, contend, key_of

ENQUEUED_AT_ONCE = 1000
CONNECTIONS = 10


def send(job: RelayJob) -> Outcome:
    """Enqueue, then work until the queue is empty."""
    return uvloop.run(_send(job))


async def _send(job: RelayJob) -> Outcome:
    connector = procrastinate.PsycopgConnector(conninfo=job.database_url, min_size=CONNECTIONS, max_size=CONNECTIONS)
    # Its warning is about tasks whose names depend on where they are imported from: ours has one of its own.
    logging.getLogger("procrastinate").setLevel(logging.ERROR)
    app = procrastinate.App(connector=connector)
    async with app.open_async(), aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=job.in_flight)) as session:

        @app.task(name="send")
        async def post(key: str, body: str) -> None:
            headers = {"Content-Type": "application/json", "Idempotency-Key": key}
            async with session.post(job.address, data=body.encode(), headers=headers) as response:
                await response.read()
                response.raise_for_status()

        await app.schema_manager.apply_schema_async()
        for first in range(1, job.events + 1, ENQUEUED_AT_ONCE):
            items = range(first, min(first + ENQUEUED_AT_ONCE, job.events + 1))
            await post.batch_defer_async(*(_arguments(item) for item in items))
        await connector.execute_query_async("ANALYZE")
        watch = Stopwatch()
        await app.run_worker_async(
            concurrency=job.in_flight, wait=False, listen_notify=False, install_signal_handlers=False
        )
        return watch.outcome()


def _arguments(item_no: int) -> JSONDict:
    return {"key": key_of(item_no), "body": body_of(item_no).decode()}


if __name__ == "__main__":
    contend(send)
