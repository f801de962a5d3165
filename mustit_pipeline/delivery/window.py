"""The sliding window: claims ahead, keeps sending, and settles what has ended, all at the same time."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from mustit_pipeline.delivery.backlog import Backlog
from mustit_pipeline.delivery.product_server import NOT_SENT, Answer
from mustit_pipeline.store.outbox import ClaimedEvent

Ended = tuple[ClaimedEvent, Answer]

# While something is still under way, rows that have become due meanwhile need not wait for its end.
LOOK_AGAIN_SECONDS = 0.25
# What has its answer is settled in batches, but never kept open for the sake of a batch.
SETTLE_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Ports:
    """What the window works with; claiming and settling block, and are called in threads."""

    claim: Callable[[int], tuple[list[ClaimedEvent], int]]
    deliver: Callable[[ClaimedEvent], Coroutine[Any, Any, Ended]]
    settle: Callable[[list[Ended]], None]


class Window:
    """So many deliveries under way at once; one claim and one settlement at a time beside them."""

    def __init__(self, ports: Ports, *, size: int, failing_batch: int, lease_seconds: float, breaker: int) -> None:
        self._ports = ports
        self._size = size
        self._failing_batch = failing_batch
        self._lease = lease_seconds
        self._breaker = breaker
        self._backlog = Backlog(size)
        self._flying: set[asyncio.Task[Ended]] = set()
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
        self._end(*((event, NOT_SENT) for event in returned))

    def _send(self) -> None:
        while len(self._flying) < self._size and (event := self._backlog.next()) is not None:
            self._flying.add(asyncio.create_task(self._ports.deliver(event)))

    def _claim_ahead(self) -> None:
        if self._claiming is not None or self._server_gone:
            return
        if self._flying and time.monotonic() >= self._look_again_at:
            self._dry_fresh = self._dry_failing = False
        wants_fresh = not self._dry_fresh and self._backlog.fresh < self._size
        wants_failing = not self._dry_failing and self._backlog.failing < self._backlog.failing_places
        if wants_fresh or wants_failing:
            failing = self._failing_batch if wants_failing else 0
            self._claiming = asyncio.create_task(self._claim(failing))

    async def _claim(self, failing: int) -> tuple[list[ClaimedEvent], int]:
        # From before the claim on, so that we never believe a lease to be longer than it is.
        fresh_until = time.monotonic() + self._lease / 2
        claimed, superseded = await asyncio.to_thread(self._ports.claim, failing)
        self._backlog.add(claimed, fresh_until)
        if not superseded:
            self._dry_fresh = all(event.failing_since is not None for event in claimed)
            if failing:
                self._dry_failing = all(event.failing_since is None for event in claimed)
        self._look_again_at = time.monotonic() + LOOK_AGAIN_SECONDS
        return claimed, superseded

    def _take_claimed(self) -> None:
        if self._claiming is not None and self._claiming.done():
            self._claiming.result()
            self._claiming = None

    def _take_answers(self) -> None:
        for task in [task for task in self._flying if task.done()]:
            self._flying.discard(task)
            event, answer = task.result()
            self._backlog.ended(event)
            self._end((event, answer))
            if answer.answered:
                self.answers += 1
                self._unreachable = 0
            elif answer.unreachable:
                self._unreachable += 1

    def _end(self, *ended: Ended) -> None:
        if ended and not self._ended:
            self._settle_by = time.monotonic() + SETTLE_SECONDS
        self._ended.extend(ended)

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
        return max((place for place, (_, answer) in enumerate(self._ended, 1) if answer.answered), default=0)

    def _patience(self) -> float:
        """Until something is to be done although nothing has ended."""
        until = self._look_again_at
        if self._settling is None and self._decided():
            until = min(until, self._settle_by)
        return max(0.005, until - time.monotonic())
