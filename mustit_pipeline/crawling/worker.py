"""The crawl worker: one loop that keeps as many requests in flight as agents and limits allow."""

import asyncio
import math
from collections import deque
from contextlib import suppress
from typing import cast

import structlog
from msgspec import Struct, field

from mustit_pipeline.agents.pool import AgentPool, Booking, Outcome, Wait
from mustit_pipeline.catalog.reading import ReadingRules
from mustit_pipeline.crawling.attempts import Attempts
from mustit_pipeline.crawling.fault_attribution import CHARGED_AGENTS
from mustit_pipeline.crawling.fetching import Fetcher, RequestCounter
from mustit_pipeline.crawling.queue import TaskQueue
from mustit_pipeline.crawling.result_buffer import Progress, ResultBuffer, WorkReport
from mustit_pipeline.crawling.results import ResultStore, TaskResult
from mustit_pipeline.crawling.sql.leases import LeasedTask
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.marketplace.client import MarketplaceClient
from mustit_pipeline.settings import Settings

# Leased ahead of their agents: fewer transactions while agents are plentiful, and nothing held for long when not, so
# that a crawl that is paused or cancelled, and a worker that stood still, send little of what they hold.
MOST_HELD = 200
HELD_SECONDS = 2.0
# A page holds hundreds of products: with as many of them at once as of other calls, memory would grow with a seller's
# listing, and reading them would keep everything else waiting.
MOST_PAGES = 5
# Agents that are booked before there is a place for their request: the answer to a booking takes as long as a request.
# Never more than there are places: a worker that dies leaves them booked, and no other worker can use them for a while.
MOST_PARKED = 50
# How soon a queue that gave less than was asked for is asked again, unless something was stored meanwhile.
DRY_SECONDS = 0.25
# How long an agent that was asked for keeps a task and a place: the counter answers sooner, only a token takes longer.
EXPECTED_SECONDS = 1.0
# An operator may pause the crawl or free an agent meanwhile, and no wait ends by that.
LONGEST_SLEEP_SECONDS = 1.0

log = structlog.get_logger(__name__)


class _Flight(Struct, frozen=True):
    leased: LeasedTask
    calls: RequestCounter = field(default_factory=RequestCounter)


class FreeAgents:
    """What a worker knows of free agents: after "none is free" it asks only for those released since."""

    def __init__(self) -> None:
        self.none_until = 0.0
        self.freed = 0
        self._maybe = 0

    def mark_released(self) -> None:
        """A request has ended, or an agent was given back."""
        self.freed += 1
        self._maybe += 1

    def ask(self, wanted: int, now: float) -> int:
        """How many of the wanted agents are worth asking for; counts them as asked."""
        asked = max(0, wanted if self.none_until <= now else min(wanted, self._maybe))
        self._maybe = max(0, self._maybe - asked)
        return asked

    def mark_exhausted(self, now: float, seconds: float, freed: int) -> None:
        """None for so many seconds, says an answer that cannot know of those freed since there were `freed` of them."""
        until = now + seconds
        self.none_until = until if self.none_until <= now else min(self.none_until, until)
        self._maybe = min(self._maybe, self.freed - freed)

    def blocked(self, now: float) -> float:
        """Seconds until an agent may be free; 0 if one may be free now."""
        return 0.0 if self._maybe else max(0.0, self.none_until - now)


class Worker:
    """Works on what its queue gives until that has ended or time is up.

    Leasing, booking and storing go on beside the requests; the loop only hands over.
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        client: MarketplaceClient,
        pool: AgentPool,
        queue: TaskQueue,
        *,
        reading_rules: ReadingRules,
        seconds: float = math.inf,
        progress: Progress | None = None,
    ) -> None:
        self._settings = settings
        self._pool = pool
        self._queue = queue
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + seconds
        # A task that waited longer would be lost with its worker, and that is counted against it.
        fetcher = Fetcher(
            settings,
            client,
            pool,
            deadline=self._deadline,
            charged_agents=CHARGED_AGENTS,
            patience=settings.lease_seconds / 3,
        )
        self._attempts = Attempts(settings, fetcher, client.endpoints, reading_rules)
        self.report = WorkReport()
        self._news = asyncio.Event()
        store = ResultStore(database, settings, client.endpoints, settle=queue.settle)
        self._results = ResultBuffer(store, self.report, progress, self._news)
        self._held: deque[LeasedTask] = deque()
        self._held_since = 0.0
        # How many of what was leased last have been sent: so many are worth leasing.
        self._sent = 0
        self._ahead = 1
        self._dry_until = 0.0
        self._in_flight: dict[asyncio.Task[TaskResult | None], _Flight] = {}
        self._pages_in_flight = 0
        self._landed: list[tuple[asyncio.Task[TaskResult | None], _Flight]] = []
        self._leasing: asyncio.Task[None] | None = None
        # Tasks that have asked for an agent, and when; with one, the same task sends the request.
        self._booking: dict[asyncio.Task[TaskResult | None], float] = {}
        # Those of them that have their agent and wait for a place.
        self._parked: deque[tuple[asyncio.Task[TaskResult | None], asyncio.Future[_Flight | None]]] = deque()
        self._broken: BaseException | None = None
        self._free = FreeAgents()
        self._stopping = False

    async def run(self) -> WorkReport:
        """Fetch until nothing is left to do or time is up; if cancelled, it first hands back and stores everything."""
        heartbeat = asyncio.create_task(self._heartbeat())
        try:
            while self._loop.time() < self._deadline:
                self._news.clear()
                self._collect()
                if self._results.store_if_due(idle=not self._in_flight):
                    self._dry_until = 0.0
                if self._held and not self._fresh:
                    self._hand_back()
                self._lease_ahead()
                self._serve_parked()
                self._book_agents()
                if self._is_busy:
                    await self._wait_for_news()
                    continue
                rest = await asyncio.to_thread(self._queue.rest)
                if rest is None:
                    break
                sleep = min(max(rest, self._blocked), LONGEST_SLEEP_SECONDS, self._deadline - self._loop.time())
                await asyncio.sleep(max(0.0, sleep))
                self._dry_until = 0.0
        finally:
            try:
                await self._drain()
            finally:
                heartbeat.cancel()
        return self.report

    @property
    def _is_busy(self) -> bool:
        """Whether something is under way, held, or not stored yet."""
        under_way = self._in_flight or self._landed or self._leasing or self._expected
        return bool(under_way or self._held or self._results.unstored)

    @property
    def _blocked(self) -> float:
        """Seconds until an agent may be free."""
        return self._free.blocked(self._loop.time())

    @property
    def _fresh(self) -> bool:
        """Whether what is held was leased a moment ago."""
        return self._loop.time() - self._held_since < HELD_SECONDS

    @property
    def _expected(self) -> int:
        """Agents that were asked for a moment ago, and those that wait for a place."""
        since = self._loop.time() - EXPECTED_SECONDS
        return sum(asked > since for asked in self._booking.values())

    def _room(self) -> int:
        """Requests that may be started: what a crash would repeat stays within twice the concurrency."""
        most = self._settings.max_concurrent_requests
        return min(most, 2 * most - self._results.unstored - len(self._landed)) - len(self._in_flight)

    def _page_room(self) -> int:
        """Pages that may be leased: one that could not be sent would hold up whatever was leased after it."""
        held = sum(leased.page_no is not None for leased in self._held)
        return max(0, MOST_PAGES - self._pages_in_flight - self._results.pages - held)

    @property
    def _lacks_tasks(self) -> bool:
        """Whether half of what should be held is gone: a transaction for each task would cost more than the task."""
        return self._ahead - len(self._held) > self._ahead // 2

    def _lease_ahead(self) -> None:
        """Lease tasks for the agents that are expected next: more, the better that went."""
        if self._leasing or self._blocked or not self._lacks_tasks or self._loop.time() < self._dry_until:
            return
        self._leasing = asyncio.create_task(self._lease(self._ahead - len(self._held)))
        self._leasing.add_done_callback(lambda _: self._news.set())

    async def _lease(self, limit: int) -> None:
        claimed = await asyncio.to_thread(self._queue.claim, limit, pages=self._page_room())
        self._held.extend(claimed)
        now = self._loop.time()
        if claimed:
            # Twice as many once half of them have been sent: what is held when a crawl is paused is sent nevertheless.
            if self._sent >= self._ahead // 2:
                self._ahead = min(2 * self._ahead, MOST_HELD)
            self._held_since = now
            self._sent = 0
        if len(claimed) < limit:
            self._dry_until = now + DRY_SECONDS

    def _book_agents(self) -> None:
        now = self._loop.time()
        parked = min(MOST_PARKED, self._settings.max_concurrent_requests)
        wanted = min(self._room() + parked, len(self._held)) - self._expected
        for _ in range(self._free.ask(wanted, now)):
            task = self._loop.create_task(self._book(self._free.freed))
            self._booking[task] = now
            task.add_done_callback(self._ended)

    async def _book(self, freed: int) -> TaskResult | None:
        """Send a task with an agent if one is free; so many had been freed when it was asked for."""
        booking = await self._pool.acquire()
        if isinstance(booking, Wait):
            self._free.mark_exhausted(self._loop.time(), min(booking.seconds, LONGEST_SLEEP_SECONDS), freed)
            return None
        task = cast("asyncio.Task[TaskResult | None]", asyncio.current_task())
        flight = self._take_off(task) if self._may_take_off else await self._park(task, booking)
        if flight is None:
            # It came late: others have sent what there was, or it was given back.
            await asyncio.shield(self._pool.settle(booking, Outcome.NOT_SENT))
            self._free.mark_released()
            return None
        return await self._attempts.make(flight.leased, booking, flight.calls)

    @property
    def _may_take_off(self) -> bool:
        """Whether there is a task to send, and a place for its request."""
        return bool(self._held) and self._fresh and self._room() > 0 and not self._stopping

    def _take_off(self, task: asyncio.Task[TaskResult | None]) -> _Flight:
        """From here on a request is under way."""
        flight = _Flight(self._held.popleft())
        del self._booking[task]
        self._in_flight[task] = flight
        self._pages_in_flight += flight.leased.page_no is not None
        self._sent += 1
        if self._lacks_tasks:
            # The next ones are leased while this is under way: it may take long.
            self._news.set()
        return flight

    async def _park(self, task: asyncio.Task[TaskResult | None], booking: Booking) -> _Flight | None:
        """Wait for a place with a booked agent; None where there is nothing left to send."""
        place: asyncio.Future[_Flight | None] = self._loop.create_future()
        self._parked.append((task, place))
        # Its agent is here: it is not late, however long it waits.
        self._booking[task] = math.inf
        self._serve_parked()
        try:
            return await place
        except asyncio.CancelledError:
            await asyncio.shield(self._pool.settle(booking, Outcome.NOT_SENT))
            raise

    def _serve_parked(self) -> None:
        """Give places to those who wait for one, and let go of those for whom there is nothing to send."""
        while self._parked and self._may_take_off:
            task, place = self._parked.popleft()
            if not place.done():
                place.set_result(self._take_off(task))
        most = len(self._held) if self._fresh and not self._stopping else 0
        while len(self._parked) > most:
            _, place = self._parked.pop()
            if not place.done():
                place.set_result(None)

    def _ended(self, task: asyncio.Task[TaskResult | None]) -> None:
        if self._booking.pop(task, None) is None:
            self._landed.append((task, self._in_flight.pop(task)))
            self._free.mark_released()
            self._serve_parked()
        elif not task.cancelled() and (error := task.exception()) is not None:
            self._broken = error
        self._news.set()

    def _collect(self) -> None:
        """Take in what has ended since the last turn."""
        landed, self._landed = self._landed, []
        # Whatever broke one of them, the others' results are kept.
        ended = [_end(task, flight) for task, flight in landed]
        self._pages_in_flight -= sum(result.leased.page_no is not None for result in ended)
        self._results.add(ended)
        for task, _ in landed:
            task.result()
        if self._leasing is not None and self._leasing.done():
            leasing, self._leasing = self._leasing, None
            leasing.result()
        if self._broken is not None:
            raise self._broken

    def _hand_back(self) -> None:
        """Agents are scarce: what is held goes back unharmed, and the next lease is as large as this one should be."""
        self._results.add([TaskResult(leased, handed_back=True) for leased in self._held])
        self._held.clear()
        self._ahead = max(1, self._sent)
        self._dry_until = self._loop.time() + DRY_SECONDS

    async def _wait_for_news(self) -> None:
        """Until something has ended, an agent is free, or what is held has been held long enough."""
        now = self._loop.time()
        until = min(self._deadline, now + LONGEST_SLEEP_SECONDS)
        if self._held:
            until = min(until, self._held_since + HELD_SECONDS)
        for moment in (self._free.none_until, self._dry_until):
            if moment > now:
                until = min(until, moment)
        with suppress(TimeoutError):
            async with asyncio.timeout_at(max(until, now + 0.001)):
                await self._news.wait()

    async def _drain(self) -> None:
        """Take nothing new, let what is in flight end within the grace time, store it, and give the rest back."""
        self._stopping = True
        self._serve_parked()
        since = self._loop.time() - EXPECTED_SECONDS
        # The tokens that these wait for are no longer needed.
        for task in (task for task, asked in self._booking.items() if asked <= since):
            task.cancel()
        leasing = [] if self._leasing is None else [self._leasing]
        if under_way := [*leasing, *self._booking, *self._in_flight]:
            await asyncio.wait(under_way, timeout=self._settings.grace_seconds)
        # What is leased at this moment must be known, so that it can be given back: only bookings are broken off.
        for task in (*self._booking, *self._in_flight):
            task.cancel()
        await asyncio.gather(*leasing, *self._booking, *self._in_flight, return_exceptions=True)
        ended = [*self._landed, *self._in_flight.items()]
        self._landed, self._in_flight = [], {}
        self._results.add([TaskResult(leased, handed_back=True) for leased in self._held])
        self._held.clear()
        # Whatever broke one of them, the others' results are stored first.
        self._results.add([_end(task, flight) for task, flight in ended])
        await self._results.store_all()
        for task, _ in ended:
            if not task.cancelled():
                task.result()

    async def _heartbeat(self) -> None:
        """Keep our leases alive for as long as we are."""
        while True:
            await asyncio.sleep(self._settings.lease_seconds / 3)
            flights = (*self._in_flight.values(), *(flight for _, flight in self._landed))
            leases = [*self._held, *(flight.leased for flight in flights), *self._results.leases()]
            if leases:
                try:
                    await asyncio.to_thread(self._queue.renew, leases)
                except Exception as error:
                    # The next beat may come through; without one the leases end, and another worker takes the tasks.
                    log.warning("leases could not be renewed", error=type(error).__name__)


def _end(task: asyncio.Task[TaskResult | None], flight: _Flight) -> TaskResult:
    """What a flight brought; one that was broken off gives its task back."""
    if not task.cancelled() and task.exception() is None and (result := task.result()) is not None:
        return result
    flight.leased.task.release(utc_now())
    return TaskResult(flight.leased, calls=flight.calls)
