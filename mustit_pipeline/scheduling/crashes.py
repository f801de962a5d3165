"""When a crawl whose slices crash is retried: a fault that a retry does not fix must not run all day."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile

from mustit_pipeline.domain.backoff import backoff_seconds

SLICE_CRASHED = "SLICE_CRASHED"


@dataclass(frozen=True, slots=True)
class EndedSlice:
    """How one run of an execution ended; a run that wrote its change sets has not crashed, even if it failed.

    A run that never started found no process to run it: that is not the crawl's fault.
    """

    run_id: str
    crashed: bool
    ended_at: datetime
    started: bool = True
    # Why every further run would fail too, if the run said so.
    for_good: str | None = None


@dataclass(frozen=True, slots=True)
class CrashVerdict:
    """The verdict on an execution's crashes: when its next slice may start, or that it is given up."""

    crashes: int
    wait_seconds: float = 0.0
    give_up: bool = False


@dataclass(frozen=True, slots=True)
class CrashRules:
    """The limit of crashes in a row, and the pauses between them."""

    most: int
    backoff_seconds: float
    longest_backoff_seconds: float


def judge_crashes(
    newest_first: Sequence[EndedSlice], rules: CrashRules, *, moved_at: datetime, now: datetime
) -> CrashVerdict:
    """Count the crashes since the execution last made progress: continue at once after the first, then wait longer.

    Most first crashes are a killed process, and the next slice succeeds. A slice that ended a task, or an operator who
    resumed the execution, resets the count. A permanent failure is given up at once.
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
