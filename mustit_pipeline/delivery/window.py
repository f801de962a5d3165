"""The sliding window: claims ahead, keeps sending, and settles what has ended, all at the same time."""

import asyncio
import math
import time
from uuid import UUID

from mustit_pipeline.delivery.backlog import Backlog, Flight
from mustit_pipeline.delivery.charges import Ended
from mustit_pipeline.delivery.claims import Claims
from mustit_pipeline.delivery.endings import Endings
from mustit_pipeline.delivery.product_server import CUT_OFF, NOT_SENT, Answer, ProductServer, Verdict
from mustit_pipeline.outbox.sql.outbox import Wanted
from mustit_pipeline.settings import Settings

# What has its answer is settled in batches: as soon as there are so many, or the first has waited for so long.
SETTLED_TOGETHER = 500
SETTLE_SECONDS = 0.1
# One row that is refused for its token may be refused for itself: a second one tells.
REFUSED_ROWS = 2


class Window:
    """So many deliveries under way at once; one claim and one settlement at a time beside them, in threads."""

    def __init__(self, settings: Settings, claims: Claims, server: ProductServer, endings: Endings) -> None:
        self._claims = claims
        self._server = server
        self._endings = endings
        self._size = settings.relay_concurrent_sends
        self._lease = settings.relay_lease_seconds
        self._breaker = settings.product_server_breaker_failures
        self._backlog = Backlog(settings)
        self._under_way: dict[asyncio.Task[None], Flight] = {}
        self._broken: asyncio.Task[None] | None = None
        self._something_to_do = asyncio.Event()
        self._ended: list[Ended] = []
        # What may be the server's failure or our credential's: the next row that is answered well tells.
        self._undecided: list[Ended] = []
        self._settle_by = 0.0
        self._claiming: asyncio.Task[None] | None = None
        self._settling: asyncio.Task[None] | None = None
        # Places that came free so far.
        self._freed = 0
        self._last_well = 0.0
        self._failures = 0
        self._refused: set[UUID] = set()
        # Whether nothing new is sent: what is under way tells whether it is the server, the credential, or a row.
        self._is_halted = False
        self._stops_by = math.inf
        self.answers = 0

    async def run(self) -> None:
        """Send for as long as rows are due; once the server is gone or we are to stop, the rest goes back unsent."""
        while True:
            self._give_back()
            while not self._is_halted and len(self._under_way) < self._size:
                flight = self._backlog.take_next(time.monotonic())
                if flight is None:
                    break
                task = asyncio.create_task(self._fly(flight))
                task.add_done_callback(self._land)
                self._under_way[task] = flight
            if self._claiming is None and not self._is_halted:
                if self._under_way:
                    self._backlog.look_again(time.monotonic())
                if (wanted := self._backlog.wanted()) is not None:
                    self._claiming = asyncio.create_task(self._claim(wanted))
                    self._claiming.add_done_callback(self._wake)
            self._settle_ended()
            if not (self._under_way or self._claiming or self._settling):
                return
            await self._wait()
            if self._broken is not None:
                self._broken.result()
            if self._claiming is not None and self._claiming.done():
                self._claiming.result()
                self._claiming = None
            if self._settling is not None and self._settling.done():
                self._settling.result()
                self._settling = None

    async def wind_down(self, grace_seconds: float) -> None:
        """Take no new row, let what is under way end for the grace time, and give the rest back.

        A relay that is asked once more to stop waits no longer.
        """
        self._is_halted = True
        self._stops_by = time.monotonic() + grace_seconds
        while True:
            try:
                return await self.run()
            except asyncio.CancelledError:
                self._stops_by = time.monotonic()

    async def _wait(self) -> None:
        """Until an answer asks for more than the next row in its place, or something else is to be done."""
        until = min(self._backlog.look_at, self._stops_by)
        if self._settling is None and self._ended:
            until = min(until, self._settle_by)
        pause = max(0.005, until - time.monotonic())
        timer = asyncio.get_running_loop().call_later(pause, self._something_to_do.set)
        try:
            await self._something_to_do.wait()
        finally:
            timer.cancel()
            self._something_to_do.clear()

    def _wake(self, _: object) -> None:
        self._something_to_do.set()

    def _give_back(self) -> None:
        now = time.monotonic()
        is_stopping = self._stops_by < math.inf
        if now >= self._stops_by:
            for task in self._under_way:
                task.cancel()
        # What was claimed is kept until nothing is under way: an answer may tell that the server is there after all.
        gone = self._is_halted and (is_stopping or not self._under_way)
        returned = self._backlog.take_outdated(math.inf if gone else now)
        returned += self._backlog.take_suspected(self._under_way.values(), now)
        self._ended += [Ended(event, NOT_SENT) for event in returned]

    async def _fly(self, flight: Flight) -> None:
        """Send one row after the other for as long as there is one: a task for each would cost as much as its call."""
        task = asyncio.current_task()
        assert task is not None
        while True:
            answer = await self._server.deliver(flight.event)
            now = time.monotonic()
            del self._under_way[task]
            self._take_answer(flight, answer, now)
            following = None if self._is_halted else self._backlog.take_next(now)
            if following is None:
                return
            flight = self._under_way[task] = following

    def _land(self, task: asyncio.Task[None]) -> None:
        flight = self._under_way.pop(task, None)
        if flight is not None and task.cancelled():
            self._take_answer(flight, CUT_OFF, time.monotonic())
        elif flight is not None:
            self._broken = task
        self._something_to_do.set()

    def _take_answer(self, flight: Flight, answer: Answer, now: float) -> None:
        ended = Ended(flight.event, answer, accompanied=self._last_well > flight.begun)
        flight.lane.under_way -= 1
        self._freed += 1
        if not self._ended:
            self._settle_by = now + SETTLE_SECONDS
            self._something_to_do.set()
        if answer.is_doubtful:
            self._undecided.append(ended)
            if answer.verdict is Verdict.UNAUTHORIZED:
                self._refused.add(flight.event.row_id)
            else:
                self._failures += 1
        elif answer.is_well:
            self._ended += [*self._undecided, ended]
            self._undecided = []
            self.answers += 1
            self._last_well = now
            self._failures = 0
            self._refused.clear()
        else:
            self._ended.append(ended)
            # An outage may have answers too; that they go on is no reason to wait for its end.
            self.answers += answer.status is not None or answer.verdict is Verdict.RETRY
        self._is_halted = (
            self._failures >= self._breaker or len(self._refused) >= REFUSED_ROWS or self._stops_by < math.inf
        )
        # There may be more to do than to send the next row.
        claims = self._claiming is None and self._backlog.is_low
        settles = self._settling is None and len(self._ended) >= SETTLED_TOGETHER
        if claims or settles or now >= self._backlog.look_who_hangs_at:
            self._something_to_do.set()

    async def _claim(self, wanted: Wanted) -> None:
        # From before the claim on, so that we never believe a lease to be longer than it is.
        fresh_until, freed = time.monotonic() + self._lease / 2, self._freed
        claimed, superseded = await asyncio.to_thread(self._claims.take, wanted)
        self._backlog.add(wanted, claimed, fresh_until=fresh_until, found_all=not superseded, freed=self._freed - freed)

    def _settle_ended(self) -> None:
        if self._settling is not None:
            return
        if not self._under_way or len(self._undecided) >= 2 * self._size:
            self._ended += self._undecided
            self._undecided = []
        elif len(self._ended) < SETTLED_TOGETHER and time.monotonic() < self._settle_by:
            return
        if self._ended:
            batch, self._ended = self._ended, []
            self._settling = asyncio.create_task(asyncio.to_thread(self._endings.write, batch, self._claims.trial))
            self._settling.add_done_callback(self._wake)
