"""Claimed rows on their way: which is sent next, and how many that failed before may be under way at once."""

import time
from collections import deque
from collections.abc import Callable, Iterable

from mustit_pipeline.store.outbox import ClaimedEvent


class Backlog:
    """Oldest first; rows that failed before never hold more than half of the window.

    A hopeless row may hold its place until the server's time is up; with enough of them nobody else would be sent.
    """

    def __init__(self, window: int) -> None:
        self.failing_places = max(1, window // 2)
        self._fresh: deque[tuple[ClaimedEvent, float]] = deque()
        self._failing: deque[tuple[ClaimedEvent, float]] = deque()
        self._failing_under_way = 0

    def __len__(self) -> int:
        return len(self._fresh) + len(self._failing)

    @property
    def failing(self) -> int:
        """How many rows wait here that failed before."""
        return len(self._failing)

    @property
    def fresh(self) -> int:
        """How many rows wait here that never failed."""
        return len(self._fresh)

    def add(self, claimed: Iterable[ClaimedEvent], fresh_until: float) -> None:
        """Rows that are ours, and until when their lease surely outlasts a delivery."""
        for event in claimed:
            (self._fresh if event.failing_since is None else self._failing).append((event, fresh_until))

    def next(self) -> ClaimedEvent | None:
        """The row to send next, None where there is none or its kind has no place left."""
        lanes = [self._fresh] if self._fresh else []
        if self._failing and self._failing_under_way < self.failing_places:
            lanes.append(self._failing)
        if not lanes:
            return None
        event, _ = min(lanes, key=lambda lane: lane[0][0].due_at).popleft()
        self._failing_under_way += event.failing_since is not None
        return event

    def ended(self, event: ClaimedEvent) -> None:
        """A row that was under way has its answer."""
        self._failing_under_way -= event.failing_since is not None

    def outdated(self) -> list[ClaimedEvent]:
        """Rows whose lease might end in flight, so that somebody else would send them too: out of here."""
        now = time.monotonic()
        return self._take_while(lambda until: now > until)

    def clear(self) -> list[ClaimedEvent]:
        """Everything that waits here, to be given back."""
        return self._take_while(lambda _: True)

    def _take_while(self, leaves: Callable[[float], bool]) -> list[ClaimedEvent]:
        taken: list[ClaimedEvent] = []
        for lane in (self._fresh, self._failing):
            while lane and leaves(lane[0][1]):
                taken.append(lane.popleft()[0])
        return taken
