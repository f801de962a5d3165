"""The crawl worker: one loop that keeps as many requests in flight as agents and limits allow."""

import asyncio
import os
import socket
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from uuid import uuid4

import structlog

from mustit_pipeline.agents.pool import AgentPool, Booking, Outcome, Wait
from mustit_pipeline.clock import utc_now
from mustit_pipeline.crawling import recovery
from mustit_pipeline.crawling.attempts import Attempts
from mustit_pipeline.crawling.fetching import Fetcher
from mustit_pipeline.crawling.results import ResultStore, TaskResult
from mustit_pipeline.crawling.storing import Progress, StoreRoom, WorkReport
from mustit_pipeline.domain.states import ExecutionStatus, TaskType
from mustit_pipeline.marketplace.client import MarketplaceClient
from mustit_pipeline.settings import Settings
from mustit_pipeline.store import executions, task_counts, tasks
from mustit_pipeline.store.database import Database
from mustit_pipeline.store.executions import StoredExecution
from mustit_pipeline.store.tasks import LeasedTask

__all__ = ["Progress", "WorkReport", "Worker", "utc_now"]

READY_AT_ONCE = 1000
# Leased ahead of their agents: fewer transactions while agents are plentiful, and nothing held for long when not.
MOST_HELD = 100
HELD_SECONDS = 2.0
# Agents asked for at once: each answer is a round trip.
ASKED_AT_ONCE = 25
# Somebody may pause the crawl or free an agent meanwhile, and no wait tells of that.
LONGEST_SLEEP_SECONDS = 1.0

log = structlog.get_logger(__name__)


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
        self._owner = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"
        # A task that waited longer would be lost with its worker, and that is counted against it.
        self._fetcher = Fetcher(
            client,
            pool,
            deadline=self._deadline,
            retry_base_seconds=settings.retry_base_seconds,
            network_tries=settings.network_tries,
            longest_backoff_seconds=settings.network_longest_backoff_seconds,
            patience=settings.lease_seconds / 3,
        )
        self._attempts = Attempts(
            self._fetcher,
            retry_base_seconds=settings.retry_base_seconds,
            longest_backoff_seconds=settings.task_longest_backoff_seconds,
        )
        self.report = WorkReport()
        store = ResultStore(database, settings, stored, client.endpoints, utc_now)
        most = settings.max_concurrent_requests
        self._results = StoreRoom(store, self._fetcher.counter, self.report, progress, batch=most)
        self._held: deque[LeasedTask] = deque()
        self._held_since = 0.0
        self._ahead = 1
        self._flying: dict[asyncio.Task[TaskResult], LeasedTask] = {}
        self._landed: list[asyncio.Task[TaskResult]] = []
        self._landing = asyncio.Event()
        # While no agent was free a moment ago, only a request that ended is a reason to ask again.
        self._none_free_until = 0.0
        self._maybe_free = 0
        # Tasks known to be ready: no agent is booked, and no request of its budget lost, for a task that is not there.
        self._ready = 0

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
            self._collect()
            await self._results.store_if_due()
            wait = await self._send(types)
            if self._held and self._loop.time() - self._held_since >= HELD_SECONDS:
                await self._hand_back()
            if self._flying:
                await self._await_one(wait)
                continue
            await self._hand_back()
            await self._results.store_all()
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
            asked = min(self._room(), max(1, len(self._held)), ASKED_AT_ONCE)
            blocked = self._none_free_until - self._loop.time()
            if blocked > 0:
                asked = min(asked, self._maybe_free)
                if not asked:
                    return blocked
            bookings, wait = await self._book(asked)
            for number, booking in enumerate(bookings):
                if not self._held:
                    await self._claim(types, bookings[number:])
                if not self._held:
                    return None
                self._fly(self._held.popleft(), booking)
            if wait is not None:
                return wait
        return None

    async def _book(self, number: int) -> tuple[list[Booking], float | None]:
        """So many agents, or those that are free and how long until there may be another."""
        answers = await asyncio.gather(*(self._pool.acquire() for _ in range(number)), return_exceptions=True)
        self._maybe_free = max(0, self._maybe_free - number)
        bookings = [answer for answer in answers if isinstance(answer, Booking)]
        waits = [answer.seconds for answer in answers if isinstance(answer, Wait)]
        for error in answers:
            if isinstance(error, BaseException):
                await self._give_up(bookings)
                raise error
        if not waits:
            return bookings, None
        wait = min(*waits, LONGEST_SLEEP_SECONDS)
        self._none_free_until, self._maybe_free = self._loop.time() + wait, 0
        return bookings, wait

    async def _give_up(self, bookings: Sequence[Booking]) -> None:
        for booking in bookings:
            await self._pool.settle(booking, Outcome.NOT_SENT)

    def _fly(self, leased: LeasedTask, booking: Booking) -> None:
        task = asyncio.create_task(self._attempts.make(leased, booking))
        self._flying[task] = leased
        task.add_done_callback(self._land)

    def _land(self, task: asyncio.Task[TaskResult]) -> None:
        self._landed.append(task)
        self._maybe_free += 1
        self._landing.set()

    def _room(self) -> int:
        """Requests that may be started: what a crash would repeat stays within twice the concurrency."""
        most = self._settings.max_concurrent_requests
        return min(most, 2 * most - self._results.unstored) - len(self._flying)

    async def _claim(self, types: Sequence[TaskType], bookings: Sequence[Booking]) -> None:
        """Lease tasks for the agents in hand and for those that are expected next: more, the better that went."""
        limit = max(len(bookings), min(self._ahead, self._room()))
        try:
            claimed = await asyncio.to_thread(self._lease, types, limit)
        except BaseException:
            await asyncio.shield(self._give_up(bookings))
            raise
        if not claimed:
            await self._give_up(bookings)
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
                max_releases=self._settings.task_max_releases,
            )

    async def _hand_back(self) -> None:
        """Agents are scarce: what is held goes back unharmed, and from now on an agent comes first."""
        if self._held:
            self._results.add([TaskResult(leased, handed_back=True) for leased in self._held])
            self._held.clear()
            self._ahead, self._ready = 1, 0
            await self._results.store_all()

    async def _await_one(self, wait: float | None) -> None:
        """Until a request has ended, an agent is free for the next one, or what is held has been held long enough."""
        timeout = LONGEST_SLEEP_SECONDS if wait is None else max(wait, 0.001)
        if self._held:
            timeout = min(timeout, max(0.001, self._held_since + HELD_SECONDS - self._loop.time()))
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._landing.wait()

    def _collect(self) -> None:
        self._landing.clear()
        landed, self._landed = self._landed, []
        for task in landed:
            del self._flying[task]
        # Whatever broke one of them, the others' results are kept.
        self._results.add([task.result() for task in landed if task.exception() is None])
        for task in landed:
            task.result()

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
        self._results.add([TaskResult(leased, handed_back=True) for leased in self._held])
        self._held.clear()
        if self._flying:
            _, late = await asyncio.wait(self._flying, timeout=self._settings.total_timeout_seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
            for task in late:
                self._flying[task].task.release(utc_now())
                self._results.add([TaskResult(self._flying[task])])
            # Whatever broke one of them, the others' results are stored first.
            whole = [task for task in self._flying if task not in late and task.exception() is None]
            self._results.add([task.result() for task in whole])
        await self._results.store_all()
        for task in self._flying:
            if not task.cancelled():
                task.result()

    async def _heartbeat(self) -> None:
        """Keep our leases alive for as long as we are."""
        while True:
            await asyncio.sleep(self._settings.lease_seconds / 3)
            held = [*self._held, *self._flying.values(), *self._results.leases()]
            if held:
                try:
                    await asyncio.to_thread(self._renew, held)
                except Exception as error:
                    # The next beat may come through; without one the leases end, and the work is somebody else's.
                    log.warning("leases could not be renewed", error=type(error).__name__)

    def _renew(self, held: Sequence[LeasedTask]) -> None:
        with self._database.transaction() as connection:
            tasks.heartbeat(connection, held, self._settings.lease_seconds)
