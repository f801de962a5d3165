"""The sliding window: claims ahead, keeps sending, and settles what has ended, all at the same time."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from mustit_pipeline.delivery.backlog import Backlog, Lane
from mustit_pipeline.delivery.product_server import NOT_SENT, Answer
from mustit_pipeline.store.outbox import ClaimedEvent, Wanted

Ended = tuple[ClaimedEvent, Answer]

# While something is still under way, rows that have become due meanwhile need not wait for its end.
LOOK_AGAIN_SECONDS = 0.25
# What has its answer is settled in batches, but never kept open for the sake of a batch.
SETTLE_SECONDS = 0.1
# How long half of the window must hang on end to be believed.
STILL_HANGING_SECONDS = 0.1
# How many times as long as a hanging call takes to be noticed must pass without one: those that follow it show by then.
CALM_TIMES = 5


@dataclass(frozen=True, slots=True)
class Ports:
    """What the window works with; claiming and settling block, and are called in threads."""

    claim: Callable[[Wanted], tuple[list[ClaimedEvent], int]]
    deliver: Callable[[ClaimedEvent], Coroutine[Any, Any, Ended]]
    settle: Callable[[list[Ended]], None]


class Window:
    """So many deliveries under way at once; one claim and one settlement at a time beside them."""

    def __init__(
        self, ports: Ports, *, size: int, batch: int, lease_seconds: float, hanging_seconds: float, breaker: int
    ) -> None:
        self._ports = ports
        self._size = size
        self._batch = batch
        self._lease = lease_seconds
        self._hanging_seconds = hanging_seconds
        self._breaker = breaker
        self._backlog = Backlog(size)
        # Each with the moment at which it began.
        self._flying: dict[asyncio.Task[Ended], float] = {}
        self._hanging_since: float | None = None
        self._last_hung = 0.0
        self._ended: list[Ended] = []
        self._settle_by = 0.0
        self._claiming: asyncio.Task[tuple[list[ClaimedEvent], int]] | None = None
        self._settling: asyncio.Task[None] | None = None
        self._dry_fresh = self._dry_failing = False
        self._look_again_at = 0.0
        self._unreachable = 0
        self.answers = 0

    @property
    def _server_gone(self) -> bool:
        return self._unreachable >= self._breaker

    async def run(self) -> None:
        """Send for as long as rows are due; once the server is gone, the rest goes back unsent."""
        while True:
            self._give_back()
            self._send()
            self._claim_ahead()
            self._settle_ended()
            under_way = self._under_way()
            if not under_way:
                return
            await asyncio.wait(under_way, timeout=self._patience(), return_when=asyncio.FIRST_COMPLETED)
            self._take_answers()
            self._take_claimed()
            if self._settling is not None and self._settling.done():
                self._settling.result()
                self._settling = None

    def _under_way(self) -> set[asyncio.Task[Any]]:
        beside = {task for task in (self._claiming, self._settling) if task is not None}
        return {*self._flying, *beside}

    def _give_back(self) -> None:
        returned = self._backlog.clear() if self._server_gone else self._backlog.outdated()
        returned += self._look_who_hangs()
        # First of all, because nothing has to be awaited before it is known what becomes of them.
        self._end(*((event, NOT_SENT) for event in returned), at=0)

    def _look_who_hangs(self) -> list[ClaimedEvent]:
        """Half of the window hangs, or nothing has for long; what is given back for the former."""
        now, hanging = time.monotonic(), self._hanging()
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
        return sum(begun < begun_before for begun in self._flying.values())

    def _send(self) -> None:
        while len(self._flying) < self._size and (event := self._backlog.next()) is not None:
            self._flying[asyncio.create_task(self._ports.deliver(event))] = time.monotonic()

    def _claim_ahead(self) -> None:
        if self._claiming is not None or self._server_gone:
            return
        now = time.monotonic()
        if self._flying and now >= self._look_again_at:
            self._dry_fresh = self._dry_failing = False
            self._look_again_at = now + LOOK_AGAIN_SECONDS
        wanted = self._wanted()
        if wanted.fresh or wanted.failing:
            self._claiming = asyncio.create_task(self._claim(wanted))

    def _wanted(self) -> Wanted:
        """What to claim next; of rows that may hold their places for long only so many as will soon have one."""
        backlog, half = self._backlog, self._backlog.suspected_places
        batch, enough = (half, half) if backlog.wary else (self._batch, self._size)
        failing = not self._dry_failing and backlog.waiting(Lane.FAILING) < half
        oldest = not self._dry_fresh and backlog.waiting(Lane.OLDEST) < enough
        newest = not self._dry_fresh and backlog.waiting(Lane.NEWEST) < self._size
        if backlog.wary and newest and not (oldest or failing):
            return Wanted(self._batch, 0, newest_first=True)
        # Failing ones are never claimed alone while others may be due: those have waited for longer, and go first.
        fresh = batch if oldest or (failing and not backlog.wary) else 0
        return Wanted(fresh, max(1, self._batch // 2) if failing else 0)

    async def _claim(self, wanted: Wanted) -> tuple[list[ClaimedEvent], int]:
        # From before the claim on, so that we never believe a lease to be longer than it is.
        fresh_until = time.monotonic() + self._lease / 2
        claimed, superseded = await asyncio.to_thread(self._ports.claim, wanted)
        self._backlog.add(claimed, fresh_until, newest=wanted.newest_first)
        if not superseded:
            failing = sum(event.failing_since is not None for event in claimed)
            if wanted.fresh:
                self._dry_fresh = failing == len(claimed)
            if wanted.failing:
                self._dry_failing = not failing
        self._look_again_at = time.monotonic() + LOOK_AGAIN_SECONDS
        return claimed, superseded

    def _take_claimed(self) -> None:
        if self._claiming is not None and self._claiming.done():
            self._claiming.result()
            self._claiming = None

    def _take_answers(self) -> None:
        for task in [task for task in self._flying if task.done()]:
            del self._flying[task]
            event, answer = task.result()
            self._backlog.ended(event)
            self._end((event, answer))
            if answer.answered:
                self.answers += 1
                self._unreachable = 0
            elif answer.unreachable:
                self._unreachable += 1

    def _end(self, *ended: Ended, at: int | None = None) -> None:
        if ended and not self._ended:
            self._settle_by = time.monotonic() + SETTLE_SECONDS
        place = len(self._ended) if at is None else at
        self._ended[place:place] = ended

    def _settle_ended(self) -> None:
        if self._settling is not None:
            return
        whole = len(self._ended) >= self._size or not self._flying
        ready = len(self._ended) if whole else self._decided() if time.monotonic() >= self._settle_by else 0
        if ready:
            batch, self._ended = self._ended[:ready], self._ended[ready:]
            self._settling = asyncio.create_task(asyncio.to_thread(self._ports.settle, batch))

    def _decided(self) -> int:
        """Up to the last answer: whether a connection that broke after it was an outage, the next answer tells."""
        decided = (answer.answered or answer is NOT_SENT for _, answer in self._ended)
        return max((place for place, is_decided in enumerate(decided, 1) if is_decided), default=0)

    def _patience(self) -> float:
        """Until something is to be done although nothing has ended."""
        until = self._look_again_at
        if self._settling is None and self._decided():
            until = min(until, self._settle_by)
        if self._hanging_since is not None:
            until = min(until, self._hanging_since + STILL_HANGING_SECONDS)
        return max(0.005, until - time.monotonic())
