"""Rows that are ours until they have their answer: which is sent next, what to claim, when to suspect the oldest."""

import time
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from mustit_pipeline.outbox.sql.outbox import ClaimedEvent, First, Wanted
from mustit_pipeline.settings import Settings

# While something is still under way, rows that have become due meanwhile need not wait for its end.
LOOK_AGAIN_SECONDS = 0.25
# How long half of the window must hang on end to be believed.
STILL_HANGING_SECONDS = 0.1
# How many times as long as a hanging call takes to be noticed must pass without one: those that follow it show by then.
CALM_TIMES = 5
# How often it is looked who hangs: with each answer would cost more than the answer.
LOOK_WHO_HANGS_SECONDS = 0.02
# A call that has used up this share of the time for its answer hangs: a second of the usual five.
HANGING_SHARE = 0.2


@dataclass(slots=True, eq=False)
class Lane:
    """Rows that wait for the same places, until when their lease is long enough, and how many are under way."""

    waiting: deque[tuple[ClaimedEvent, float]] = field(default_factory=deque[tuple[ClaimedEvent, float]])
    under_way: int = 0


class Flight(Struct, frozen=True):
    """A row under way, the lane whose place it has, and the moment at which it began."""

    event: ClaimedEvent
    lane: Lane
    begun: float


class Backlog:
    """Oldest first; rows that failed before never hold more than half of the window.

    A hopeless row may hold its place until the server's time is up; enough of them would keep all others from being
    sent, on their first try too. So once half of the window hangs, the rows that have waited longest are suspected like
    failing ones, and the other half is for the newest.
    """

    def __init__(self, settings: Settings) -> None:
        self._size = settings.relay_concurrent_sends
        self._batch = settings.relay_batch
        self._suspected_places = max(1, self._size // 2)
        self._hanging_seconds = settings.product_server_read_seconds * HANGING_SHARE
        self._oldest, self._newest, self._failing = self._lanes = (Lane(), Lane(), Lane())
        self._enough = self._size
        self._dry_fresh = self._dry_failing = False
        self._is_wary = False
        self._hanging_since: float | None = None
        self._last_hung = 0.0
        self.look_who_hangs_at = 0.0
        self._look_again_at = 0.0

    @property
    def is_low(self) -> bool:
        """Whether so few of the oldest wait here that a place may be free before more are claimed.

        What hangs frees no place, so that the rows behind it stay where other relays, and its own claims of the newest,
        find them.
        """
        return not self._dry_fresh and len(self._oldest.waiting) < (
            self._suspected_places if self._is_wary else self._enough
        )

    @property
    def look_at(self) -> float:
        """When something is to be done here although no answer has come."""
        if self._hanging_since is None:
            return self._look_again_at
        return min(self._look_again_at, self._hanging_since + STILL_HANGING_SECONDS)

    def look_again(self, now: float) -> None:
        """Rows that are due may have come where none were found."""
        if now >= self._look_again_at:
            self._dry_fresh = self._dry_failing = False
            self._look_again_at = now + LOOK_AGAIN_SECONDS

    def wanted(self) -> Wanted | None:
        """What to claim next; of rows that may hold their places for long only so many as will soon have one."""
        half = self._suspected_places
        failing = not self._dry_failing and len(self._failing.waiting) < half
        newest = not self._dry_fresh and len(self._newest.waiting) < self._size
        if self._is_wary and newest and not (self.is_low or failing):
            return Wanted(self._batch, 0, First.NEWEST)
        # Failing ones are never claimed alone while others may be due: those have waited for longer, and go first.
        fresh = (half if self._is_wary else self._batch) if self.is_low or (failing and not self._is_wary) else 0
        return Wanted(fresh, max(1, self._batch // 2) if failing else 0) if fresh or failing else None

    def add(
        self, wanted: Wanted, claimed: Sequence[ClaimedEvent], *, fresh_until: float, found_all: bool, freed: int
    ) -> None:
        """Take in a claim: its rows, oldest first, and until when their lease surely outlasts a delivery.

        While it was made, `freed` places came free: so many rows are claimed ahead that none stays free.
        """
        newest = wanted.first is First.NEWEST
        fresh = self._newest if newest else self._oldest
        for event in reversed(claimed) if newest else claimed:
            (fresh if event.failing_since is None else self._failing).waiting.append((event, fresh_until))
        if found_all:
            failing = sum(event.failing_since is not None for event in claimed)
            if wanted.fresh:
                self._dry_fresh = failing == len(claimed)
            if wanted.failing:
                self._dry_failing = not failing
        self._enough = self._size + 2 * min(freed, self._batch)
        self._look_again_at = time.monotonic() + LOOK_AGAIN_SECONDS

    def take_next(self, now: float) -> Flight | None:
        """The row to send next, None where there is none or its kind has no place left."""
        suspected = self._failing.under_way + (self._oldest.under_way if self._is_wary else 0)
        is_full = suspected >= self._suspected_places
        chosen: Lane | None = None
        for lane in self._lanes:
            if not lane.waiting or (is_full and (lane is self._failing or (self._is_wary and lane is self._oldest))):
                continue
            if chosen is None or lane.waiting[0][0].due_at < chosen.waiting[0][0].due_at:
                chosen = lane
        if chosen is None:
            return None
        chosen.under_way += 1
        return Flight(chosen.waiting.popleft()[0], chosen, now)

    def take_outdated(self, now: float) -> list[ClaimedEvent]:
        """Take out the rows whose lease might end in flight: another relay would send them too."""
        taken: list[ClaimedEvent] = []
        for lane in self._lanes:
            while lane.waiting and lane.waiting[0][1] < now:
                taken.append(lane.waiting.popleft()[0])
        return taken

    def take_suspected(self, under_way: Collection[Flight], now: float) -> list[ClaimedEvent]:
        """Once half of the window hangs, take out the oldest, so that both ends share its other half."""
        if now < self.look_who_hangs_at:
            return []
        self.look_who_hangs_at = now + LOOK_WHO_HANGS_SECONDS
        hanging = sum(flight.begun < now - self._hanging_seconds for flight in under_way)
        if hanging:
            self._last_hung = now
        if self._is_wary:
            self._is_wary = now - self._last_hung < CALM_TIMES * self._hanging_seconds
        elif hanging < self._suspected_places:
            self._hanging_since = None
        elif self._hanging_since is None:
            # It may be we who stood still: then the answers are there already, and are taken first.
            self._hanging_since = now
        elif now - self._hanging_since >= STILL_HANGING_SECONDS:
            self._hanging_since, self._is_wary = None, True
            suspected = [event for event, _ in self._oldest.waiting]
            self._oldest.waiting.clear()
            return suspected
        return []
