"""Results on their way into the database: stored in batches beside the fetching, one batch at a time."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import structlog

from mustit_pipeline.crawling.fetching import RequestCounter
from mustit_pipeline.crawling.results import ResultStore, TaskResult
from mustit_pipeline.store.tasks import LeasedTask

MOST_AT_ONCE = 100
LONGEST_UNSTORED_SECONDS = 2.0

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class WorkReport:
    """What one stretch of work came to; `remaining` tasks are left for the next slice."""

    completed: int = 0
    failed: int = 0
    requests: int = 0
    throttled: int = 0
    remaining: int = 0


Progress = Callable[[WorkReport], None]


class StoreRoom:
    """Keeps ended attempts until they are stored."""

    def __init__(
        self, store: ResultStore, counter: RequestCounter, report: WorkReport, progress: Progress | None, *, batch: int
    ) -> None:
        self._store = store
        self._counter = counter
        self._report = report
        self._progress = progress
        self._batch = min(batch, MOST_AT_ONCE)
        self._loop = asyncio.get_running_loop()
        self._waiting: list[TaskResult] = []
        self._under_way: list[TaskResult] = []
        self._storing: asyncio.Task[None] | None = None
        self._began = self._loop.time()

    @property
    def unstored(self) -> int:
        """Results that a crash would lose."""
        return len(self._waiting) + len(self._under_way)

    def leases(self) -> list[LeasedTask]:
        """What must stay ours until it is stored."""
        return [result.leased for result in (*self._waiting, *self._under_way)]

    def add(self, results: Iterable[TaskResult]) -> None:
        """These attempts have ended."""
        self._waiting += results

    async def store_if_due(self) -> None:
        """Begin a batch where there is enough for one, or where one has waited long; a slow database is waited for."""
        if self._storing is not None and self._storing.done():
            await self._settle()
        full = len(self._waiting) >= self._batch
        late = bool(self._waiting) and self._loop.time() - self._began >= LONGEST_UNSTORED_SECONDS
        if full or (late and self._storing is None):
            await self._settle()
            self._begin()

    async def store_all(self) -> None:
        """Everything, now."""
        await self._settle()
        self._begin()
        await self._settle()

    def _begin(self) -> None:
        self._began = self._loop.time()
        if self._waiting or self._counter.requests:
            self._under_way, self._waiting = self._waiting, []
            self._storing = asyncio.create_task(self._store_batch())

    async def _settle(self) -> None:
        if self._storing is not None:
            storing, self._storing = self._storing, None
            await storing

    async def _store_batch(self) -> None:
        counted = self._counter.drain()
        try:
            outcome = await asyncio.to_thread(self._store.store, self._under_way, counted)
        except BaseException:
            # Storing again is harmless: what was written is no longer leased.
            self._waiting = [*self._under_way, *self._waiting]
            self._counter.put_back(counted)
            raise
        finally:
            self._under_way = []
        self._report.completed += outcome.completed
        self._report.failed += outcome.failed
        self._report.requests += counted.requests
        self._report.throttled += counted.throttled
        if outcome.lost:
            log.warning("late results dropped: their leases had ended", count=outcome.lost)
        if self._progress is not None:
            self._progress(self._report)
