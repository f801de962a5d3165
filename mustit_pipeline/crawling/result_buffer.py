"""Results on their way into the database: stored in batches beside the fetching, few at a time."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import structlog

from mustit_pipeline.crawling.results import Receipt, ResultStore, StoredOutcome, TaskResult
from mustit_pipeline.crawling.sql.leases import LeasedTask
from mustit_pipeline.domain.states import TaskStatus, TaskType

# Enough for a transaction; whatever gathers while all of them are under way goes with the next. The first batches are
# small: a worker that does not live long leaves something behind too.
BATCH = 80
# A page is as much to store as this many other results, and as much to hold.
PAGE_WEIGHT = 10
BATCHES_AT_ONCE = 2
LONGEST_UNSTORED_SECONDS = 2.0

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Tally:
    """Tasks that ended and calls that were made, of one type or of all."""

    completed: int = 0
    failed: int = 0
    requests: int = 0
    throttled: int = 0

    def add(self, other: "Tally") -> None:
        """Count these too."""
        self.completed += other.completed
        self.failed += other.failed
        self.requests += other.requests
        self.throttled += other.throttled


@dataclass(slots=True)
class WorkReport(Tally):
    """What one stretch of work came to; `remaining` tasks are left for the next slice."""

    remaining: int = 0
    by_type: dict[TaskType, Tally] = field(default_factory=dict[TaskType, Tally])

    def count(self, task_type: TaskType, done: Tally) -> None:
        """Count what was done for tasks of a type."""
        self.add(done)
        self.by_type.setdefault(task_type, Tally()).add(done)

    def of(self, task_type: TaskType) -> Tally:
        """The share of one type."""
        return self.by_type.get(task_type, Tally())


Progress = Callable[[WorkReport], None]


@dataclass(frozen=True, slots=True)
class _Batch:
    results: list[TaskResult]
    receipt: Receipt = field(default_factory=Receipt)


class ResultBuffer:
    """Keeps ended attempts until they are stored; `news` is set when a batch has been."""

    def __init__(self, store: ResultStore, report: WorkReport, progress: Progress | None, news: asyncio.Event) -> None:
        self._store = store
        self._report = report
        self._progress = progress
        self._news = news
        self._loop = asyncio.get_running_loop()
        self._waiting: list[TaskResult] = []
        self._pages_waiting = 0
        self._under_way: dict[asyncio.Task[StoredOutcome], _Batch] = {}
        # Batches that could not be stored, or were without our knowing: each stays whole, so that its receipt holds.
        self._unsure: list[_Batch] = []
        # Asked for before each request, so it is counted and not summed up.
        self._in_batches = 0
        self._began = self._loop.time()
        self._enough = 1

    @property
    def unstored(self) -> int:
        """Results that a crash would lose."""
        return len(self._waiting) + self._in_batches

    @property
    def pages(self) -> int:
        """How many of them are listing pages."""
        return self._pages_waiting + sum(result.holds_page for batch in self._begun for result in batch.results)

    def leases(self) -> list[LeasedTask]:
        """What must stay ours until it is stored."""
        begun = (batch.results for batch in self._begun)
        return [result.leased for results in (self._waiting, *begun) for result in results]

    @property
    def _begun(self) -> list[_Batch]:
        return [*self._under_way.values(), *self._unsure]

    def add(self, results: Iterable[TaskResult]) -> None:
        """These attempts have ended."""
        added = list(results)
        self._waiting += added
        self._pages_waiting += sum(result.holds_page for result in added)

    def store_if_due(self, *, idle: bool) -> bool:
        """Begin a batch where there is enough for one, it has waited long, or nothing more is coming.

        True where a batch has been stored since the last call; raises if one could not be.
        """
        ended = [storing for storing in self._under_way if storing.done()]
        for storing in ended:
            self._take_in(storing)
        late = self._loop.time() - self._began >= LONGEST_UNSTORED_SECONDS
        enough = len(self._waiting) + PAGE_WEIGHT * self._pages_waiting >= self._enough
        due = enough or late or (idle and not self._under_way)
        if self._waiting and due and len(self._under_way) < BATCHES_AT_ONCE:
            self._begin(self._take_batch())
        return bool(ended)

    async def store_all(self) -> None:
        """Everything, now; a batch that could not be stored beside the fetching is tried once more before the rest."""
        if self._under_way:
            await asyncio.wait(self._under_way)
        troubles: list[Exception] = []
        for storing in list(self._under_way):
            stored = storing.exception() is None
            try:
                self._take_in(storing)
            except Exception as error:
                if stored:
                    troubles.append(error)
        if self._waiting:
            self._unsure.append(self._take_batch())
        for _ in range(len(self._unsure)):
            storing = self._begin(self._unsure.pop(0))
            await asyncio.wait([storing])
            try:
                self._take_in(storing)
            except Exception as error:
                troubles.append(error)
        if troubles:
            raise troubles[0]

    def _take_batch(self) -> _Batch:
        self._began = self._loop.time()
        self._enough = min(2 * self._enough, BATCH)
        results, self._waiting, self._pages_waiting = self._waiting, [], 0
        self._in_batches += len(results)
        return _Batch(results)

    def _begin(self, batch: _Batch) -> asyncio.Task[StoredOutcome]:
        storing = asyncio.create_task(asyncio.to_thread(self._store.store, batch.results, batch.receipt))
        self._under_way[storing] = batch
        storing.add_done_callback(lambda _: self._news.set())
        return storing

    def _take_in(self, storing: asyncio.Task[StoredOutcome]) -> None:
        batch = self._under_way.pop(storing)
        if storing.exception() is not None:
            self._unsure.append(batch)
        outcome = storing.result()
        self._in_batches -= len(batch.results)
        for task_type in {result.leased.task_type for result in batch.results}:
            calls = [result.calls for result in batch.results if result.leased.task_type == task_type]
            done = Tally(
                outcome.ended[task_type, TaskStatus.COMPLETED],
                outcome.ended[task_type, TaskStatus.FAILED],
                sum(call.requests for call in calls),
                sum(call.throttled for call in calls),
            )
            self._report.count(task_type, done)
        if outcome.lost:
            log.warning("late results dropped: their leases had ended", count=outcome.lost)
        if self._progress is not None:
            self._progress(self._report)
