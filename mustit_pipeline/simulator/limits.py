"""The marketplace's limits for one user agent, counted when a request arrives."""

from collections import deque
from dataclasses import dataclass
from math import ceil


@dataclass(frozen=True, slots=True)
class Limits:
    """So many requests in any window, and a pause between two; 0 means no pause."""

    requests_per_window: int = 80
    window_seconds: float = 3600.0
    min_gap_seconds: float = 1.0
    gap_tolerance_seconds: float = 0.05


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is over the limit, and when the agent may try again."""

    cause: str
    retry_after: int


class AgentWindow:
    """The arrivals of one agent; refused ones use up no allowance but are counted as seen."""

    __slots__ = ("_admitted", "_last", "_refused")

    def __init__(self) -> None:
        self._admitted: deque[float] = deque()
        self._refused: deque[float] = deque()
        self._last: float | None = None

    def arrive(self, now: float, limits: Limits) -> Refusal | None:
        """Admit the request, or say why not."""
        start = now - limits.window_seconds
        for arrivals in (self._admitted, self._refused):
            while arrivals and arrivals[0] <= start:
                arrivals.popleft()
        gap = limits.min_gap_seconds
        refusal = None
        if len(self._admitted) >= limits.requests_per_window:
            refusal = Refusal("window", ceil(self._admitted[-limits.requests_per_window] - start))
        elif gap and self._last is not None and now - self._last < gap - limits.gap_tolerance_seconds:
            refusal = Refusal("gap", ceil(self._last + gap - now))
        if refusal is None:
            self._admitted.append(now)
            self._last = now
        else:
            self._refused.append(now)
        return refusal

    @property
    def seen(self) -> int:
        """Requests in the window that ends with the latest arrival, refused ones included."""
        return len(self._admitted) + len(self._refused)
