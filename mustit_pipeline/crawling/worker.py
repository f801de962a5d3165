"""The crawl worker: one loop that keeps as many requests in flight as agents and limits allow."""

import asyncio
import os
import random
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import structlog

from mustit_pipeline.agents.pool import AgentPool, Booking, Outcome, Wait
from mustit_pipeline.crawling import recovery
from mustit_pipeline.crawling.fetching import Fetcher, SliceEnded
from mustit_pipeline.crawling.results import ResultStore, TaskResult
from mustit_pipeline.domain.backoff import backoff_seconds
from mustit_pipeline.domain.states import ExecutionStatus, TaskType
from mustit_pipeline.failures import FetchError, NotFoundAnswer
from mustit_pipeline.marketplace.client import MarketplaceClient
from mustit_pipeline.marketplace.parsing import parse_detail, parse_listing, parse_options
from mustit_pipeline.settings import Settings
from mustit_pipeline.store import executions, tasks
from mustit_pipeline.store.database import Database
from mustit_pipeline.store.executions import StoredExecution
from mustit_pipeline.store.tasks import LeasedTask

LONGEST_BACKOFF_SECONDS = 60.0
READY_AT_ONCE = 1000
WRONG_SELLER = "EXTERNAL_WRONG_SELLER"

log = structlog.get_logger(__name__)


def utc_now() -> datetime:
    """The one clock of the crawl."""
    return datetime.now(UTC)


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
        self._deadline = asyncio.get_running_loop().time() + seconds
        self._progress = progress
        self._owner = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"
        self._fetcher = Fetcher(client, pool, deadline=self._deadline, retry_base_seconds=settings.retry_base_seconds)
        self._store = ResultStore(database, settings, stored, client.endpoints, utc_now)
        self._flying: dict[asyncio.Task[TaskResult], LeasedTask] = {}
        self._ended: list[TaskResult] = []
        # Tasks known to be ready: no agent is booked, and no request of its budget lost, for a task that is not there.
        self._ready = 0
        self.report = WorkReport()

    async def run(self, types: Sequence[TaskType]) -> WorkReport:
        """Fetch until no task of these types is left, the execution is no longer running, or time is up."""
        heartbeat = asyncio.create_task(self._heartbeat())
        try:
            await self._work(types)
        finally:
            heartbeat.cancel()
            await self._drain()
        with self._database.reading() as connection:
            self.report.remaining = tasks.open_work(connection, self._stored.home, types).open
        return self.report

    async def _work(self, types: Sequence[TaskType]) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() < self._deadline:
            await self._store_if_due()
            bookings, wait = await self._book(types)
            started = await self._start(types, bookings)
            if started:
                continue
            if self._flying:
                await self._await_one(wait)
                continue
            await self._store_all()
            pause = await asyncio.to_thread(self._pause, types)
            if pause is None:
                return
            await asyncio.sleep(min(max(pause, wait), max(0.0, self._deadline - loop.time())))

    async def _book(self, types: Sequence[TaskType]) -> tuple[list[Booking], float]:
        """Agents for as many requests as there are room and tasks for, and how long until there are more."""
        if not self._ready:
            self._ready = await asyncio.to_thread(self._claimable, types)
        bookings: list[Booking] = []
        room = min(self._ready, self._settings.max_concurrent_requests - len(self._flying))
        while len(bookings) < room:
            answer = await self._pool.acquire()
            if isinstance(answer, Wait):
                return bookings, answer.seconds
            bookings.append(answer)
        return bookings, 0.0

    async def _start(self, types: Sequence[TaskType], bookings: list[Booking]) -> int:
        """Lease one task for each agent in hand; an agent is never booked for a task that waits."""
        if not bookings:
            return 0
        claimed = await asyncio.to_thread(self._claim, types, len(bookings))
        self._ready = self._ready - len(claimed) if len(claimed) == len(bookings) else 0
        for leased, booking in zip(claimed, bookings, strict=False):
            self._flying[asyncio.create_task(self._attempt(leased, booking))] = leased
        for spare in bookings[len(claimed) :]:
            await self._pool.settle(spare, Outcome.NOT_SENT)
        return len(claimed)

    def _claimable(self, types: Sequence[TaskType]) -> int:
        with self._database.reading() as connection:
            return tasks.claimable(connection, self._stored.home, types, READY_AT_ONCE)

    def _claim(self, types: Sequence[TaskType], limit: int) -> list[LeasedTask]:
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

    async def _await_one(self, wait: float) -> None:
        """Until a request has ended, or an agent is free for the next one."""
        timeout = wait if wait > 0 and len(self._flying) < self._settings.max_concurrent_requests else None
        done, _ = await asyncio.wait(self._flying, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        self._collect(done)

    def _collect(self, done: set[asyncio.Task[TaskResult]]) -> None:
        for task in done:
            del self._flying[task]
            self._ended.append(task.result())

    async def _store_if_due(self) -> None:
        """Few transactions, but what is unstored and in flight stays within twice the concurrency."""
        self._collect({task for task in self._flying if task.done()})
        if len(self._ended) >= min(self._settings.max_concurrent_requests, 100):
            await self._store_all()

    async def _store_all(self) -> None:
        results, self._ended = self._ended, []
        counted = self._fetcher.counter.drain()
        if not results and not counted.requests:
            return
        outcome = await asyncio.to_thread(self._store.store, results, counted)
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
            work = tasks.open_work(connection, self._stored.home, types)
        if current.execution.status is not ExecutionStatus.RUNNING or not work.open:
            return None
        return min(max(work.next_in, 0.05), 5.0)

    async def _drain(self) -> None:
        """Let what is in flight end, store it, and give the rest back."""
        if self._flying:
            done, late = await asyncio.wait(self._flying, timeout=self._settings.total_timeout_seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
            for task in late:
                leased = self._flying.pop(task)
                leased.task.release(utc_now())
                self._ended.append(TaskResult(leased))
            self._collect(done)
        await self._store_all()

    async def _heartbeat(self) -> None:
        """Keep our leases alive for as long as we are."""
        while True:
            await asyncio.sleep(self._settings.lease_seconds / 3)
            held = [*self._flying.values(), *(result.leased for result in self._ended)]
            if held:
                await asyncio.to_thread(self._renew, held)

    def _renew(self, held: Sequence[LeasedTask]) -> None:
        with self._database.transaction() as connection:
            tasks.heartbeat(connection, held, self._settings.lease_seconds)

    async def _attempt(self, leased: LeasedTask, booking: Booking) -> TaskResult:
        """Fetch one task's body and move the task on; never raises for what the marketplace does."""
        task = leased.task
        try:
            fetched = await self._fetcher.fetch(task.request_url, _reader(leased), booking)
        except NotFoundAnswer as error:
            if leased.probe:
                task.complete(utc_now())
                return TaskResult(leased, gone=True)
            return self._failed(leased, error.code, error.english, permanent=True)
        except SliceEnded:
            task.release(utc_now())
            return TaskResult(leased)
        except FetchError as error:
            return self._failed(leased, error.code, error.english, permanent=not error.transient)
        value: Any = fetched.value
        if task.task_type is TaskType.PRODUCT_DETAIL and value.seller_id != task.seller_id.value:
            if leased.probe:
                task.complete(utc_now())
                return TaskResult(leased, gone=True)
            return self._failed(leased, WRONG_SELLER, f"the detail is of the seller {value.seller_id!r}")
        task.complete(utc_now())
        page = value if task.task_type is TaskType.MINISHOP else None
        return TaskResult(leased, body=fetched.body.decode(), page=page)

    def _failed(self, leased: LeasedTask, code: str, reason: str, *, permanent: bool = False) -> TaskResult:
        task = leased.task
        task.fail(reason[:1000], utc_now(), code=code, permanent=permanent)
        if not task.can_retry():
            return TaskResult(leased)
        task.retry()
        base = self._settings.retry_base_seconds
        return TaskResult(
            leased, delay=backoff_seconds(task.retry_count, base, LONGEST_BACKOFF_SECONDS, random.random())
        )


def _reader(leased: LeasedTask) -> Callable[[bytes], Any]:
    """How the body of a task is read; what cannot be read is a failed fetch."""
    task = leased.task
    item_no = None if task.item_no is None else task.item_no.value
    if task.task_type is TaskType.MINISHOP:
        return parse_listing
    if task.task_type is TaskType.PRODUCT_DETAIL:
        return lambda body: parse_detail(body, item_no=item_no)
    return lambda body: parse_options(body, item_no=item_no)
