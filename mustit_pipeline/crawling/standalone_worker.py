"""The standalone worker: takes tasks of all running executions, on any host, until it is stopped."""

import asyncio
import random

import structlog

from mustit_pipeline.agents.pool import AgentPool
from mustit_pipeline.catalog.reading import reading_rules
from mustit_pipeline.crawling.queue import shared_queue
from mustit_pipeline.crawling.result_buffer import Progress
from mustit_pipeline.crawling.worker import Worker
from mustit_pipeline.domain.backoff import backoff_seconds
from mustit_pipeline.foundation.database import Database, addresses, is_outage
from mustit_pipeline.marketplace.client import MarketplaceClient
from mustit_pipeline.settings import Settings

LONGEST_PAUSE_SECONDS = 30.0
# After this long without a failure, the count of failures starts again.
CALM_SECONDS = 60.0

log = structlog.get_logger(__name__)


async def serve(database: Database, settings: Settings, seconds: float, progress: Progress | None = None) -> None:
    """Work until the time is over or the task is cancelled; an outage of the database is waited for."""
    loop, current = asyncio.get_running_loop(), asyncio.current_task()
    deadline = loop.time() + seconds
    failures = 0
    while loop.time() < deadline:
        began = loop.time()
        try:
            await _work(database, settings, deadline - began, progress)
        except Exception as error:
            if not is_outage(error):
                raise
            # Our leases expire; results that were not stored are fetched again by another worker.
            failures = 1 if loop.time() - began > CALM_SECONDS else failures + 1
            pause = backoff_seconds(failures, 1.0, LONGEST_PAUSE_SECONDS, random.random())
            log.warning("PostgreSQL does not answer", error=type(error).__name__, again_in=round(pause, 1))
            if current is not None and current.cancelling():
                # The outage came while the worker was being stopped: nothing is left to clean up.
                raise asyncio.CancelledError from error
            # A server that became a standby keeps its old connections open: reconnect to reach the new primary.
            await asyncio.to_thread(database.close)
            await asyncio.sleep(min(pause, max(0.0, deadline - loop.time())))


async def _work(database: Database, settings: Settings, seconds: float, progress: Progress | None) -> None:
    async with (
        MarketplaceClient(settings) as client,
        AgentPool(settings, database, client, redis_url=addresses(settings).redis_url) as pool,
    ):
        queue = shared_queue(database, settings)
        rules = reading_rules(database, settings)
        worker = Worker(
            settings, database, client, pool, queue, reading_rules=rules, seconds=seconds, progress=progress
        )
        await worker.run()
