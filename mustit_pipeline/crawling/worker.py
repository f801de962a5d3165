"""The crawl worker: one loop that keeps as many requests in flight as agents and limits allow."""

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from uuid import uuid4

import structlog

from mustit_pipeline.agents.pool import AgentPool, Booking, Outcome, Wait
from mustit_pipeline.crawling import recovery
from mustit_pipeline.crawling.attempts import Attempts, utc_now
from mustit_pipeline.crawling.fetching import Fetcher
from mustit_pipeline.crawling.results import ResultStore, TaskResult
from mustit_pipeline.domain.states import ExecutionStatus, TaskType
from mustit_pipeline.marketplace.client import MarketplaceClient
from mustit_pipeline.settings import Settings
from mustit_pipeline.store import executions, task_counts, tasks
from mustit_pipeline.store.database import Database
from mustit_pipeline.store.executions import StoredExecution
from mustit_pipeline.store.tasks import LeasedTask

READY_AT_ONCE = 1000
# Leased ahead of their agents: fewer transactions while agents are plentiful, and nothing held for long when not.
MOST_HELD = 20
HELD_SECONDS = 2.0
MOST_STORED_AT_ONCE = 100
UNSTORED_SECONDS = 2.0
# Somebody may pause the crawl or free an agent meanwhile, and no wait tells of that.
LONGEST_SLEEP_SECONDS = 1.0

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


class Worker:
    """Works on the tasks of one execution until they have ended or the slice is over."""

    def __init__(
        self,
        database: Database,
        settings: Settings,
        client: MarketplaceClient,
        pool: AgentPool,
        stored: StoredExecution,
        *,
        seconds: float,
        progress: Progress | None = None,
    ) -> None:
        self._database = database
        self._settings = settings
        self._pool = pool
        self._stored = stored
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + seconds
        self._progress = progress
        self._owner = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"
        # A task that waited longer would be lost with its worker, and that is counted against it.
        self._fetcher = Fetcher(
            client,
            pool,
            deadline=self._deadline,
            retry_base_seconds=settings.retry_base_seconds,
            patience=settings.lease_seconds / 3,
        )
        self._attempts = Attempts(self._fetcher, retry_base_seconds=settings.retry_base_seconds)
        self._store = ResultStore(database, settings, stored, client.endpoints, utc_now)
        self._held: deque[LeasedTask] = deque()
        self._held_since = 0.0
        self._ahead = 1
        self._flying: dict[asyncio.Task[TaskResult], LeasedTask] = {}
        self._ended: list[TaskResult] = []
        self._stored_at = self._loop.time()
        self._storing: asyncio.Task[None] | None = None
        self._stored_now: list[TaskResult] = []
        # Tasks known to be ready: no agent is booked, and no request of its budget lost, for a task that is not there.
        self._ready = 0
        self.report = WorkReport()

    async def run(self, types: Sequence[TaskType]) -> WorkReport:
        """Fetch until no task of these types is left, the execution is no longer running, or time is up."""
        heartbeat = asyncio.create_task(self._heartbeat())
        try:
            await self._work(types)
        finally:
            try:
                await self._drain()
            finally:
                heartbeat.cancel()
        with self._database.reading() as connection:
            self.report.remaining = task_counts.open_work(connection, self._stored.home, types).open
        return self.report

    async def _work(self, types: Sequence[TaskType]) -> None:
        while self._loop.time() < self._deadline:
            self._collect([task for task in self._flying if task.done()])
            await self._store_if_due()
            wait = await self._send(types)
            if self._held and self._loop.time() - self._held_since >= HELD_SECONDS:
                await self._hand_back()
            if self._flying:
                await self._await_one(wait)
                continue
            await self._hand_back()
            await self._store_all()
            pause = await asyncio.to_thread(self._pause, types)
            if pause is None:
                return
            sleep = min(max(pause, wait or 0.0), LONGEST_SLEEP_SECONDS, self._deadline - self._loop.time())
            await asyncio.sleep(max(0.0, sleep))

    async def _send(self, types: Sequence[TaskType]) -> float | None:
        """Send a task with every free agent; seconds until the next one is free, None where agents are not the lack."""
        while self._room() > 0:
            if not self._held and not self._ready:
                self._ready = await asyncio.to_thread(self._claimable, types)
                if not self._ready:
                    return None
            answer = await self._pool.acquire()
            if isinstance(answer, Wait):
                return answer.seconds
            if not self._held:
                await self._claim(types, answer)
            if not self._held:
                await self._pool.settle(answer, Outcome.NOT_SENT)
                return None
            leased = self._held.popleft()
            self._flying[asyncio.create_task(self._attempts.make(leased, answer))] = leased
        return None

    def _room(self) -> int:
        """Requests that may be started: what a crash would repeat stays within twice the concurrency."""
        most = self._settings.max_concurrent_requests
        unstored = len(self._ended) + len(self._stored_now)
        return min(most - len(self._flying), 2 * most - len(self._flying) - unstored)

    async def _claim(self, types: Sequence[TaskType], booking: Booking) -> None:
        """Lease tasks for the agent in hand and for those that are expected next: more, the better that went."""
        limit = max(1, min(self._ahead, self._room()))
        try:
            claimed = await asyncio.to_thread(self._lease, types, limit)
        except BaseException:
            await asyncio.shield(self._pool.settle(booking, Outcome.NOT_SENT))
            raise
        self._ready = max(0, self._ready - len(claimed)) if len(claimed) == limit else 0
        self._held.extend(claimed)
        self._held_since = self._loop.time()
        self._ahead = min(2 * self._ahead, MOST_HELD)

    def _claimable(self, types: Sequence[TaskType]) -> int:
        with self._database.reading() as connection:
            return task_counts.claimable(connection, self._stored.home, types, READY_AT_ONCE)

    def _lease(self, types: Sequence[TaskType], limit: int) -> list[LeasedTask]:
        with self._database.transaction() as connection:
            return tasks.claim(
                connection,
                self._stored.home,
                types,
                owner=self._owner,
                limit=limit,
                lease_seconds=self._settings.lease_seconds,
                max_retries=self._settings.task_max_retries,
            )

    async def _hand_back(self) -> None:
        """Agents are scarce: what is held goes back unharmed, and from now on an agent comes first."""
        if self._held:
            self._ended += [TaskResult(leased, handed_back=True) for leased in self._held]
            self._held.clear()
            self._ahead, self._ready = 1, 0
            await self._store_all()

    async def _await_one(self, wait: float | None) -> None:
        """Until a request has ended, an agent is free for the next one, or what is held has been held long enough."""
        waits = [UNSTORED_SECONDS] if self._ended else []
        if wait is not None:
            waits.append(max(wait, 0.001))
        if self._held:
            waits.append(max(0.001, self._held_since + HELD_SECONDS - self._loop.time()))
        timeout = min(waits, default=None)
        done, _ = await asyncio.wait(self._flying, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        self._collect(done)

    def _collect(self, done: Iterable[asyncio.Task[TaskResult]]) -> None:
        for task in done:
            del self._flying[task]
            self._ended.append(task.result())

    async def _store_if_due(self) -> None:
        """Few transactions, beside the fetching; one at a time, so that a slow database slows the fetching down."""
        if self._storing is not None and self._storing.done():
            await self._settle_store()
        full = len(self._ended) >= min(self._settings.max_concurrent_requests, MOST_STORED_AT_ONCE)
        late = bool(self._ended) and self._loop.time() - self._stored_at >= UNSTORED_SECONDS
        if full or (late and self._storing is None):
            await self._settle_store()
            self._begin_store()

    async def _store_all(self) -> None:
        await self._settle_store()
        self._begin_store()
        await self._settle_store()

    def _begin_store(self) -> None:
        self._stored_at = self._loop.time()
        if self._ended or self._fetcher.counter.requests:
            self._stored_now, self._ended = self._ended, []
            self._storing = asyncio.create_task(self._store_now())

    async def _settle_store(self) -> None:
        if self._storing is not None:
            storing, self._storing = self._storing, None
            await storing

    async def _store_now(self) -> None:
        counted = self._fetcher.counter.drain()
        try:
            outcome = await asyncio.to_thread(self._store.store, self._stored_now, counted)
        except BaseException:
            # Storing again is harmless: what was written is no longer leased.
            self._ended = [*self._stored_now, *self._ended]
            self._fetcher.counter.put_back(counted)
            raise
        finally:
            self._stored_now = []
        self.report.completed += outcome.completed
        self.report.failed += outcome.failed
        self.report.requests += counted.requests
        self.report.throttled += counted.throttled
        if outcome.lost:
            log.warning("late results dropped: their leases had ended", count=outcome.lost)
        if self._progress is not None:
            self._progress(self.report)

    def _pause(self, types: Sequence[TaskType]) -> float | None:
        """How long until a task may be ready; None where there is nothing left to do here."""
        recovery.release_expired(self._database, self._settings, utc_now(), execution_id=self._stored.home.execution_id)
        with self._database.reading() as connection:
            current = executions.get(connection, self._stored.execution.id)
            work = task_counts.open_work(connection, self._stored.home, types)
        if current.execution.status is not ExecutionStatus.RUNNING or not work.open:
            return None
        return max(work.next_in, 0.05)

    async def _drain(self) -> None:
        """Let what is in flight end, store it, and give the rest back."""
        self._ended += [TaskResult(leased, handed_back=True) for leased in self._held]
        self._held.clear()
        broken = None
        if self._flying:
            done, late = await asyncio.wait(self._flying, timeout=self._settings.total_timeout_seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
            for task in late:
                leased = self._flying.pop(task)
                leased.task.release(utc_now())
                self._ended.append(TaskResult(leased))
            for task in done:
                # Whatever broke one of them, the others' results are stored first.
                broken = broken or task.exception()
            self._collect([task for task in done if task.exception() is None])
        await self._store_all()
        if broken is not None:
            raise broken

    async def _heartbeat(self) -> None:
        """Keep our leases alive for as long as we are."""
        while True:
            await asyncio.sleep(self._settings.lease_seconds / 3)
            unstored = [result.leased for result in (*self._ended, *self._stored_now)]
            held = [*self._held, *self._flying.values(), *unstored]
            if held:
                try:
                    await asyncio.to_thread(self._renew, held)
                except Exception as error:
                    # The next beat may come through; without one the leases end, and the work is somebody else's.
                    log.warning("leases could not be renewed", error=type(error).__name__)

    def _renew(self, held: Sequence[LeasedTask]) -> None:
        with self._database.transaction() as connection:
            tasks.heartbeat(connection, held, self._settings.lease_seconds)
