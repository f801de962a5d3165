"""Results on their way into the database: stored in batches beside the fetching, one batch at a time."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import structlog

from mustit_pipeline.crawling.results import ResultStore, TaskResult
from mustit_pipeline.store.tasks import LeasedTask

# Enough for a transaction; whatever gathers while one is under way goes with the next.
BATCH = 40
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
    """Keeps ended attempts until they are stored; `news` is set when a batch has been."""

    def __init__(self, store: ResultStore, report: WorkReport, progress: Progress | None, news: asyncio.Event) -> None:
        self._store = store
        self._report = report
        self._progress = progress
        self._news = news
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

    async def store_if_due(self, *, idle: bool) -> bool:
        """Begin a batch where there is enough for one, it has waited long, or nothing more is coming.

        True where a batch has been stored since the last call.
        """
        ended = self._storing is not None and self._storing.done()
        if ended:
            await self._settle()
        late = self._loop.time() - self._began >= LONGEST_UNSTORED_SECONDS
        if self._storing is None and self._waiting and (len(self._waiting) >= BATCH or late or idle):
            self._begin()
        return ended

    async def store_all(self) -> None:
        """Everything, now."""
        await self._settle()
        if self._waiting:
            self._begin()
            await self._settle()

    def _begin(self) -> None:
        self._began = self._loop.time()
        self._under_way, self._waiting = self._waiting, []
        self._storing = asyncio.create_task(self._store_batch())
        self._storing.add_done_callback(lambda _: self._news.set())

    async def _settle(self) -> None:
        if self._storing is not None:
            storing, self._storing = self._storing, None
            await storing

    async def _store_batch(self) -> None:
        batch = self._under_way
        try:
            outcome = await asyncio.to_thread(self._store.store, batch)
        except BaseException:
            # Storing again is harmless: what was written is no longer leased.
            self._waiting = [*batch, *self._waiting]
            raise
        finally:
            self._under_way = []
        self._report.completed += outcome.completed
        self._report.failed += outcome.failed
        self._report.requests += sum(result.calls.requests for result in batch)
        self._report.throttled += sum(result.calls.throttled for result in batch)
        if outcome.lost:
            log.warning("late results dropped: their leases had ended", count=outcome.lost)
        if self._progress is not None:
            self._progress(self._report)
