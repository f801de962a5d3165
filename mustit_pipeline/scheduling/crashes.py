"""When a crawl whose slices crash is tried again: what one more try will not heal must not run all day."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile

from mustit_pipeline.domain.backoff import backoff_seconds

SLICE_CRASHED = "SLICE_CRASHED"


@dataclass(frozen=True, slots=True)
class EndedSlice:
    """How one run of an execution ended; one that wrote its change sets has not crashed, even if it is red.

    One that never started had nobody to do it: that says nothing about the crawl.
    """

    run_id: str
    crashed: bool
    ended_at: datetime
    started: bool = True
    # Why every further run would end the same way, where it said so itself.
    for_good: str | None = None


@dataclass(frozen=True, slots=True)
class CrashVerdict:
    """What the crashes of an execution mean for its next slice."""

    crashes: int
    wait_seconds: float = 0.0
    give_up: bool = False


@dataclass(frozen=True, slots=True)
class CrashRules:
    """How many crashes in a row are too many, and how long a crawl rests between them."""

    most: int
    backoff_seconds: float
    longest_backoff_seconds: float


def judge_crashes(
    newest_first: Sequence[EndedSlice], rules: CrashRules, *, moved_at: datetime, now: datetime
) -> CrashVerdict:
    """Count the crashes since anything of the execution moved: after the first go on at once, then wait ever longer.

    Most first crashes are a killed process, and going on heals them. A slice that ended a task, and somebody who
    resumed the execution, both start the count anew. What failed for good is given up at once.
    """
    row = list(takewhile(lambda ended: ended.crashed and ended.ended_at > moved_at, newest_first))
    begun = sum(ended.started for ended in row)
    if begun >= rules.most or (row and row[0].for_good is not None):
        return CrashVerdict(begun, give_up=True)
    if len(row) <= 1:
        return CrashVerdict(len(row))
    pause = backoff_seconds(len(row) - 1, rules.backoff_seconds, rules.longest_backoff_seconds, 0.0)
    passed = (now - row[0].ended_at).total_seconds()
    return CrashVerdict(len(row), wait_seconds=max(0.0, pause - passed))
