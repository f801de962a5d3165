"""When a crawl whose slices crash is retried: a fault that a retry does not fix must not run all day."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from uuid import UUID

from mustit_pipeline.crawling.sql import slices
from mustit_pipeline.crawling.sql.slices import BegunCrawl, EndedSlice
from mustit_pipeline.crawling.steering import give_up
from mustit_pipeline.domain.backoff import backoff_seconds
from mustit_pipeline.domain.states import SliceOutcome
from mustit_pipeline.domain.values import ExecutionId
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.settings import Settings

SLICE_CRASHED = "SLICE_CRASHED"
# A run that never started counts for the pause alone.
CRASHES = frozenset({SliceOutcome.CRASHED, SliceOutcome.FAILED_FOR_GOOD, SliceOutcome.NEVER_STARTED})
PROCESS_ENDED = "its process ended"


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

    @classmethod
    def of(cls, settings: Settings) -> "CrashRules":
        """The rules that the settings name."""
        return cls(settings.slice_max_crashes, settings.slice_backoff_seconds, settings.slice_longest_backoff_seconds)


@dataclass(frozen=True, slots=True)
class RestingCrawl:
    """A crawl that gets no slice now, for its verdict and its newest slice."""

    crawl: BegunCrawl
    verdict: CrashVerdict
    last: EndedSlice

    @property
    def why(self) -> str:
        """In words for the tick."""
        verdict = self.verdict
        if not verdict.give_up:
            return f"{verdict.crashes} crashes in a row, next try in {verdict.wait_seconds:.0f} s"
        if self.last.outcome is SliceOutcome.FAILED_FOR_GOOD:
            return f"given up, its last run failed for good with {self.last.error}"
        return f"given up after {verdict.crashes} crashes in a row"

    @property
    def reason(self) -> str:
        """In words for people; the error's own text stays in the run, because it may hold secrets."""
        remedy = f"look at the run {self.last.run_id}, mend the cause, and go on with `mustit execution resume`"
        if self.last.outcome is SliceOutcome.FAILED_FOR_GOOD:
            return f"its last run failed for good with {self.last.error}: {remedy}"
        name = self.last.error or PROCESS_ENDED
        return (
            f"{self.verdict.crashes} runs in a row crashed without getting any further, the last one with {name}: "
            f"{remedy}"
        )


def judge_crashes(
    newest_first: Sequence[EndedSlice], rules: CrashRules, *, moved_at: datetime, now: datetime
) -> CrashVerdict:
    """Count the crashes since the execution last made progress: continue at once after the first, then wait longer.

    Most first crashes are a killed process, and going on heals them. A slice that ended a task, and an operator who
    resumed the execution, both start the count anew. What failed for good is given up at once.
    """
    row = list(takewhile(lambda ended: ended.outcome in CRASHES and ended.ended_at > moved_at, newest_first))
    begun = sum(ended.outcome is not SliceOutcome.NEVER_STARTED for ended in row)
    if begun >= rules.most or (row and row[0].outcome is SliceOutcome.FAILED_FOR_GOOD):
        return CrashVerdict(begun, give_up=True)
    if len(row) <= 1:
        return CrashVerdict(len(row))
    pause = backoff_seconds(len(row) - 1, rules.backoff_seconds, rules.longest_backoff_seconds, 0.0)
    passed = (now - row[0].ended_at).total_seconds()
    return CrashVerdict(len(row), wait_seconds=max(0.0, pause - passed))


def begun_crawls(database: Database, *, busy: Collection[str]) -> list[BegunCrawl]:
    """The crawls that could have another slice, of sellers without a run."""
    with database.reading() as connection:
        return [one for one in slices.begun(connection) if one.seller_id not in busy]


def newest_slices(
    database: Database, crawls: Collection[BegunCrawl], rules: CrashRules
) -> dict[UUID, list[EndedSlice]]:
    """As many ended slices of each crawl as can matter, newest first."""
    with database.reading() as connection:
        return slices.newest(connection, [crawl.execution_id for crawl in crawls], rules.most)


def resting_crawls(
    crawls: Collection[BegunCrawl], ended: Mapping[UUID, Sequence[EndedSlice]], rules: CrashRules, now: datetime
) -> list[RestingCrawl]:
    """The crawls that get no slice now: they rest between two tries, or have crashed too often."""
    resting: list[RestingCrawl] = []
    for crawl in crawls:
        newest_first = ended[crawl.execution_id]
        verdict = judge_crashes(newest_first, rules, moved_at=crawl.moved_at, now=now)
        if verdict.give_up or verdict.wait_seconds > 0:
            resting.append(RestingCrawl(crawl, verdict, newest_first[0]))
    return resting


def give_up_crashing_crawls(database: Database, resting: Collection[RestingCrawl], now: datetime) -> None:
    """Fail the crawls that have crashed too often, each with its reason; they can be resumed."""
    for one in resting:
        if one.verdict.give_up:
            give_up(database, ExecutionId(one.crawl.execution_id), SLICE_CRASHED, one.reason, now)
