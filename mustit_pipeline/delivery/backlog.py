"""Claimed rows on their way: which is sent next, and how many that may be hopeless are under way at once."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from enum import IntEnum

from mustit_pipeline.outbox.sql.outbox import ClaimedEvent


class Lane(IntEnum):
    """Rows that wait for the same places."""

    OLDEST = 0
    NEWEST = 1
    FAILING = 2


LANES = tuple(Lane)


class Backlog:
    """Oldest first; rows that failed before never hold more than half of the window.

    A hopeless row may hold its place until the server's time is up; enough of them would keep all others from being
    sent, on their first try too. So once half of the window hangs, the rows that have waited longest are suspected like
    failing ones, and the other half is for the newest.
    """

    def __init__(self, window: int) -> None:
        self.suspected_places = max(1, window // 2)
        self.wary = False
        # By lane.
        self._waiting: tuple[deque[tuple[ClaimedEvent, float]], ...] = tuple(deque() for _ in Lane)
        self._taken = [0 for _ in Lane]

    def waiting(self, lane: Lane) -> int:
        """How many rows wait in a lane."""
        return len(self._waiting[lane])

    def add(self, claimed: Sequence[ClaimedEvent], fresh_until: float, *, newest: bool) -> None:
        """Rows that are ours, oldest first, and until when their lease surely outlasts a delivery."""
        fresh = Lane.NEWEST if newest else Lane.OLDEST
        for event in reversed(claimed) if newest else claimed:
            self._waiting[fresh if event.failing_since is None else Lane.FAILING].append((event, fresh_until))

    def take_next(self) -> tuple[ClaimedEvent, Lane] | None:
        """The row to send next, None where there is none or its kind has no place left."""
        first: ClaimedEvent | None = None
        lane = Lane.OLDEST
        for other in LANES:
            waiting = self._waiting[other]
            if waiting and (first is None or waiting[0][0].due_at < first.due_at) and self._has_place(other):
                first, lane = waiting[0][0], other
        if first is None:
            return None
        self._waiting[lane].popleft()
        self._taken[lane] += 1
        return first, lane

    def _has_place(self, lane: Lane) -> bool:
        if lane is Lane.NEWEST or (lane is Lane.OLDEST and not self.wary):
            return True
        suspected = self._taken[Lane.FAILING] + (self._taken[Lane.OLDEST] if self.wary else 0)
        return suspected < self.suspected_places

    def free_place(self, lane: Lane) -> None:
        """A row that was under way has its answer."""
        self._taken[lane] -= 1

    def be_wary(self) -> list[ClaimedEvent]:
        """From now on the oldest are suspected; those that wait here are given back, so that both ends share them."""
        self.wary = True
        return self._take_while(lambda _: True, Lane.OLDEST)

    def take_outdated(self) -> list[ClaimedEvent]:
        """Take out the rows whose lease might end in flight: another relay would send them too."""
        now = time.monotonic()
        return self._take_while(lambda until: now > until, *Lane)

    def clear(self) -> list[ClaimedEvent]:
        """Everything that waits here, to be given back."""
        return self._take_while(lambda _: True, *Lane)

    def _take_while(self, leaves: Callable[[float], bool], *lanes: Lane) -> list[ClaimedEvent]:
        taken: list[ClaimedEvent] = []
        for lane in lanes:
            waiting = self._waiting[lane]
            while waiting and leaves(waiting[0][1]):
                taken.append(waiting.popleft()[0])
        return taken
