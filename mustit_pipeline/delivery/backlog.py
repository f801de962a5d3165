"""Claimed rows on their way: which is sent next, and how many that may be hopeless are under way at once."""

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from enum import Enum, auto
from uuid import UUID

from mustit_pipeline.outbox.sql.outbox import ClaimedEvent


class Lane(Enum):
    """Rows that wait for the same places."""

    OLDEST = auto()
    NEWEST = auto()
    FAILING = auto()


class Backlog:
    """Oldest first; rows that failed before never hold more than half of the window.

    A hopeless row may hold its place until the server's time is up; enough of them would keep all others from being
    sent, on their first try too. So once half of the window hangs, the rows that have waited longest are suspected like
    failing ones, and the other half is for the newest.
    """

    def __init__(self, window: int) -> None:
        self.suspected_places = max(1, window // 2)
        self.wary = False
        self._waiting: dict[Lane, deque[tuple[ClaimedEvent, float]]] = {lane: deque() for lane in Lane}
        self._under_way: dict[UUID, Lane] = {}
        self._taken: Counter[Lane] = Counter()

    def waiting(self, lane: Lane) -> int:
        """How many rows wait in a lane."""
        return len(self._waiting[lane])

    def add(self, claimed: Sequence[ClaimedEvent], fresh_until: float, *, newest: bool) -> None:
        """Rows that are ours, oldest first, and until when their lease surely outlasts a delivery."""
        fresh = Lane.NEWEST if newest else Lane.OLDEST
        for event in reversed(claimed) if newest else claimed:
            self._waiting[fresh if event.failing_since is None else Lane.FAILING].append((event, fresh_until))

    def next(self) -> ClaimedEvent | None:
        """The row to send next, None where there is none or its kind has no place left."""
        lanes = [lane for lane in Lane if self._waiting[lane] and self._has_place(lane)]
        if not lanes:
            return None
        lane = min(lanes, key=lambda lane: self._waiting[lane][0][0].due_at)
        event, _ = self._waiting[lane].popleft()
        self._under_way[event.row_id] = lane
        self._taken[lane] += 1
        return event

    def _has_place(self, lane: Lane) -> bool:
        if lane is Lane.NEWEST or (lane is Lane.OLDEST and not self.wary):
            return True
        suspected = self._taken[Lane.FAILING] + (self._taken[Lane.OLDEST] if self.wary else 0)
        return suspected < self.suspected_places

    def ended(self, event: ClaimedEvent) -> None:
        """A row that was under way has its answer."""
        self._taken[self._under_way.pop(event.row_id)] -= 1

    def be_wary(self) -> list[ClaimedEvent]:
        """From now on the oldest are suspected; those that wait here are given back, so that both ends share them."""
        self.wary = True
        return self._take_while(lambda _: True, Lane.OLDEST)

    def outdated(self) -> list[ClaimedEvent]:
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
