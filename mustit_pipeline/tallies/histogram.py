"""Durations counted in buckets: any number of them in a few numbers, which add up over hours and processes."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many there were, their sum in seconds, and how many in each bucket; the last bucket has no upper bound.

    What is only counted has no buckets.
    """

    number: int = 0
    seconds: float = 0.0
    buckets: tuple[int, ...] = ()

    @classmethod
    def of(cls, durations: Iterable[float], bounds: Sequence[float]) -> Self:
        """Durations sorted into the buckets that end at these bounds."""
        buckets = [0] * (len(bounds) + 1)
        number, total = 0, 0.0
        for duration in durations:
            buckets[bisect_left(bounds, duration)] += 1
            number, total = number + 1, total + duration
        return cls(number, total, tuple(buckets))

    def __add__(self, other: "Histogram") -> "Histogram":
        if not self.number:
            return other
        if not other.number:
            return self
        buckets = tuple(one + more for one, more in zip(self.buckets, other.buckets, strict=True))
        return Histogram(self.number + other.number, self.seconds + other.seconds, buckets)

    def quantile(self, share: float, bounds: Sequence[float]) -> float | None:
        """The duration that this share stays within, as Prometheus estimates it: evenly spread inside of a bucket.

        None if nothing was counted; the last bound where it lies beyond that.
        """
        wanted = share * sum(self.buckets)
        if not wanted:
            return None
        below, lower = 0, 0.0
        for inside, upper in zip(self.buckets, bounds, strict=False):
            if inside and below + inside >= wanted:
                return lower + (upper - lower) * (wanted - below) / inside
            below, lower = below + inside, upper
        return bounds[-1]
