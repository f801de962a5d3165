"""The sliding window: claims ahead, keeps sending, and settles what has ended, all at the same time."""

import asyncio
import time
import traceback
from collections.abc import Coroutine
from typing import Any
from uuid import UUID

import structlog
from msgspec import Struct

from mustit_pipeline.delivery.backlog import Backlog, Lane
from mustit_pipeline.delivery.charges import Ended
from mustit_pipeline.delivery.claims import Claims
from mustit_pipeline.delivery.endings import Endings
from mustit_pipeline.delivery.events import event_body, event_type
from mustit_pipeline.delivery.product_server import (
    CUT_OFF,
    NOT_SENT,
    NOTHING_TO_SAY,
    Answer,
    ProductServer,
    Verdict,
)
from mustit_pipeline.foundation import logs
from mustit_pipeline.outbox.sql.outbox import ClaimedEvent, Wanted
from mustit_pipeline.settings import Settings

# While something is still under way, rows that have become due meanwhile need not wait for its end.
LOOK_AGAIN_SECONDS = 0.25
# What has its answer is settled in batches: as soon as there are so many, or the first has waited for so long.
SETTLED_TOGETHER = 500
SETTLE_SECONDS = 0.1
# How long half of the window must hang on end to be believed.
STILL_HANGING_SECONDS = 0.1
# How many times as long as a hanging call takes to be noticed must pass without one: those that follow it show by then.
CALM_TIMES = 5
# How often it is looked who hangs: with each answer would cost more than the answer.
LOOK_WHO_HANGS_SECONDS = 0.02
# One row that is refused for its token may be refused for itself: a second one tells.
REFUSED_ROWS = 2
# A call that has used up this share of the time for its answer hangs: a second of the usual five.
HANGING_SHARE = 0.2

log = structlog.get_logger(__name__)


class Flight(Struct, frozen=True):
    """A row under way, the lane whose place it has, and the moment at which it began."""

    event: ClaimedEvent
    lane: Lane
    begun: float


class Window:
    """So many deliveries under way at once; one claim and one settlement at a time beside them, in threads."""

    def __init__(self, settings: Settings, claims: Claims, server: ProductServer, endings: Endings) -> None:
        self._claims = claims
        self._server = server
        self._endings = endings
        self._size = settings.relay_concurrent_sends
        self._batch = settings.relay_batch
        self._lease = settings.relay_lease_seconds
        self._hanging_seconds = settings.product_server_read_seconds * HANGING_SHARE
        self._breaker = settings.product_server_breaker_failures
        self._backlog = Backlog(self._size)
        self._under_way: dict[asyncio.Task[None], Flight] = {}
        self._broken: asyncio.Task[None] | None = None
        self._something_to_do = asyncio.Event()
        self._hanging_since: float | None = None
        self._last_hung = 0.0
        self._look_who_hangs_at = 0.0
        self._ended: list[Ended] = []
        # What may be the server's failure or our credential's: the next row that is answered well tells.
        self._undecided: list[Ended] = []
        self._settle_by = 0.0
        self._claiming: asyncio.Task[None] | None = None
        self._settling: asyncio.Task[None] | None = None
        # Places that came free so far, and while the last claim was under way.
        self._freed = 0
        self._freed_by_claim = 0
        self._dry_fresh = self._dry_failing = False
        self._look_again_at = 0.0
        self._last_well = 0.0
        self._failures = 0
        self._refused: set[UUID] = set()
        self._stops_by: float | None = None
        self.answers = 0

    @property
    def _is_halted(self) -> bool:
        """Whether nothing new is sent: what is under way tells whether it is the server, the credential, or a row."""
        return self._failures >= self._breaker or len(self._refused) >= REFUSED_ROWS or self._stops_by is not None

    async def run(self) -> None:
        """Send for as long as rows are due; once the server is gone or we are to stop, the rest goes back unsent."""
        while True:
            self._give_back()
            self._send()
            self._claim_ahead()
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
        self._stops_by = time.monotonic() + grace_seconds
        while True:
            try:
                return await self.run()
            except asyncio.CancelledError:
                self._stops_by = time.monotonic()

    async def _wait(self) -> None:
        """Until an answer asks for more than the next row in its place, or something else is to be done."""
        timer = asyncio.get_running_loop().call_later(self._patience(), self._something_to_do.set)
        try:
            await self._something_to_do.wait()
        finally:
            timer.cancel()
            self._something_to_do.clear()

    def _begin(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        task.add_done_callback(lambda _: self._something_to_do.set())
        return task

    def _give_back(self) -> None:
        if self._stops_by is not None and time.monotonic() >= self._stops_by:
            for task in self._under_way:
                task.cancel()
        # What was claimed is kept until nothing is under way: an answer may tell that the server is there after all.
        gone = self._is_halted and (not self._under_way or self._stops_by is not None)
        returned = self._backlog.clear() if gone else self._backlog.take_outdated()
        returned += self._look_who_hangs()
        self._end(*(Ended(event, NOT_SENT) for event in returned))

    def _look_who_hangs(self) -> list[ClaimedEvent]:
        """Half of the window hangs, or nothing has for long; what is given back for the former."""
        now = time.monotonic()
        if now < self._look_who_hangs_at:
            return []
        self._look_who_hangs_at = now + LOOK_WHO_HANGS_SECONDS
        hanging = self._hanging()
        if hanging:
            self._last_hung = now
        if self._backlog.wary:
            self._backlog.wary = now - self._last_hung < CALM_TIMES * self._hanging_seconds
        elif hanging < self._backlog.suspected_places:
            self._hanging_since = None
        elif self._hanging_since is None:
            # It may be we who stood still: then the answers are there already, and are taken first.
            self._hanging_since = now
        elif now - self._hanging_since >= STILL_HANGING_SECONDS:
            self._hanging_since = None
            return self._backlog.be_wary()
        return []

    def _hanging(self) -> int:
        begun_before = time.monotonic() - self._hanging_seconds
        return sum(flight.begun < begun_before for flight in self._under_way.values())

    def _send(self) -> None:
        if self._is_halted:
            return
        while len(self._under_way) < self._size and (found := self._backlog.take_next()) is not None:
            flight = Flight(*found, time.monotonic())
            task = asyncio.create_task(self._fly(flight))
            task.add_done_callback(self._land)
            self._under_way[task] = flight

    async def _fly(self, flight: Flight) -> None:
        """Send one row after the other for as long as there is one: a task for each would cost as much as its call."""
        task = asyncio.current_task()
        assert task is not None
        while True:
            answer = await self._deliver(flight.event)
            now = time.monotonic()
            del self._under_way[task]
            self._take_answer(flight, answer, now)
            if self._is_halted or (found := self._backlog.take_next()) is None:
                return
            flight = self._under_way[task] = Flight(*found, now)

    async def _deliver(self, event: ClaimedEvent) -> Answer:
        try:
            kind = event_type(event)
            if kind is None:
                return NOTHING_TO_SAY
            return await self._server.deliver(event.idempotency_key, event_body(event, kind))
        except Exception as error:
            # A defect of ours on one row must not stop those beside it. Only where it happened is told: values, and
            # with them the server's token, stay out of the logs.
            where = "".join(traceback.format_tb(error.__traceback__))
            error_kind = type(error).__name__
            with logs.about(outbox_id=event.row_id, seller_id=event.seller_id):
                log.error(  # noqa: TRY400
                    "event cannot be sent", idempotency_key=event.idempotency_key, error=error_kind, where=where
                )
            return Answer(Verdict.RETRY, None, f"{error_kind} while sending it", sent=False)

    def _land(self, task: asyncio.Task[None]) -> None:
        flight = self._under_way.pop(task, None)
        if flight is not None and task.cancelled():
            self._take_answer(flight, CUT_OFF, time.monotonic())
        elif flight is not None:
            self._broken = task
        self._something_to_do.set()

    def _claim_ahead(self) -> None:
        if self._claiming is not None or self._is_halted:
            return
        now = time.monotonic()
        if self._under_way and now >= self._look_again_at:
            self._dry_fresh = self._dry_failing = False
            self._look_again_at = now + LOOK_AGAIN_SECONDS
        wanted = self._wanted()
        if wanted.fresh or wanted.failing:
            self._claiming = self._begin(self._claim(wanted))

    def _wanted(self) -> Wanted:
        """What to claim next; of rows that may hold their places for long only so many as will soon have one."""
        backlog, half = self._backlog, self._backlog.suspected_places
        batch = half if backlog.wary else self._batch
        failing = not self._dry_failing and backlog.waiting(Lane.FAILING) < half
        oldest = not self._dry_fresh and backlog.waiting(Lane.OLDEST) < self._enough
        newest = not self._dry_fresh and backlog.waiting(Lane.NEWEST) < self._size
        if backlog.wary and newest and not (oldest or failing):
            return Wanted(self._batch, 0, newest_first=True)
        # Failing ones are never claimed alone while others may be due: those have waited for longer, and go first.
        fresh = batch if oldest or (failing and not backlog.wary) else 0
        return Wanted(fresh, max(1, self._batch // 2) if failing else 0)

    @property
    def _enough(self) -> int:
        """How many of the oldest wait here until more are claimed: so many that no place is free before those arrive.

        What hangs frees no place, so that the rows behind it stay where other relays, and its own claims of the newest,
        find them.
        """
        if self._backlog.wary:
            return self._backlog.suspected_places
        return self._size + 2 * min(self._freed_by_claim, self._batch)

    async def _claim(self, wanted: Wanted) -> None:
        # From before the claim on, so that we never believe a lease to be longer than it is.
        fresh_until, freed = time.monotonic() + self._lease / 2, self._freed
        claimed, superseded = await asyncio.to_thread(self._claims.take, wanted)
        self._freed_by_claim = self._freed - freed
        self._backlog.add(claimed, fresh_until, newest=wanted.newest_first)
        if not superseded:
            failing = sum(event.failing_since is not None for event in claimed)
            if wanted.fresh:
                self._dry_fresh = failing == len(claimed)
            if wanted.failing:
                self._dry_failing = not failing
        self._look_again_at = time.monotonic() + LOOK_AGAIN_SECONDS

    def _take_answer(self, flight: Flight, answer: Answer, now: float) -> None:
        self._backlog.free_place(flight.lane)
        self._freed += 1
        self._end(Ended(flight.event, answer, accompanied=self._last_well > flight.begun))
        if answer.is_well:
            self.answers += 1
            self._last_well = now
            self._failures = 0
            self._refused.clear()
        elif answer.verdict is Verdict.UNAUTHORIZED:
            self._refused.add(flight.event.row_id)
        elif answer.is_doubtful:
            self._failures += 1
        # An outage may have answers too; that they go on is no reason to wait for its end.
        elif answer.status is not None or answer.verdict is Verdict.RETRY:
            self.answers += 1
        if self._asks_for_more(now):
            self._something_to_do.set()

    def _asks_for_more(self, now: float) -> bool:
        """Whether there may be more to do than to send the next row."""
        claims = self._claiming is None and not self._dry_fresh and self._backlog.waiting(Lane.OLDEST) < self._enough
        settles = self._settling is None and len(self._ended) >= SETTLED_TOGETHER
        return claims or settles or now >= self._look_who_hangs_at

    def _end(self, *ended: Ended) -> None:
        if ended and not self._ended:
            self._settle_by = time.monotonic() + SETTLE_SECONDS
            self._something_to_do.set()
        for one in ended:
            if one.answer.is_doubtful:
                self._undecided.append(one)
                continue
            if one.answer.is_well and self._undecided:
                self._ended += self._undecided
                self._undecided = []
            self._ended.append(one)

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
            self._settling = self._begin(asyncio.to_thread(self._endings.write, batch, self._claims.trial))

    def _patience(self) -> float:
        """Until something is to be done although nothing has ended."""
        until = self._look_again_at
        if self._settling is None and self._ended:
            until = min(until, self._settle_by)
        if self._hanging_since is not None:
            until = min(until, self._hanging_since + STILL_HANGING_SECONDS)
        if self._stops_by is not None:
            until = min(until, self._stops_by)
        return max(0.005, until - time.monotonic())
