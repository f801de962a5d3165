"""When a crawl whose slices crash gets its next slice."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from mustit_pipeline.crawling.sql.slices import BegunCrawl, EndedSlice
from mustit_pipeline.domain.states import SliceOutcome
from mustit_pipeline.scheduling.crashes import CrashRules, CrashVerdict, judge_crashes, resting_crawls

NOW = datetime(2026, 11, 16, tzinfo=UTC)
LONG_AGO = NOW - timedelta(days=1)
CRAWL = BegunCrawl(uuid4(), "dmont", LONG_AGO)
BACKOFF_SECONDS, LONGEST_BACKOFF_SECONDS = 40.0, 500.0


def ended(seconds_ago: float, outcome: SliceOutcome = SliceOutcome.CRASHED, error: str | None = None) -> EndedSlice:
    return EndedSlice("run", CRAWL.execution_id, outcome, NOW - timedelta(seconds=seconds_ago), error)


def judge(*newest_first: EndedSlice, moved_at: datetime = LONG_AGO, most: int = 5) -> CrashVerdict:
    rules = CrashRules(most, BACKOFF_SECONDS, LONGEST_BACKOFF_SECONDS)
    return judge_crashes(newest_first, rules, moved_at=moved_at, now=NOW)


def test_a_crawl_without_a_crash_goes_on_at_once_and_so_does_one_after_its_first() -> None:
    assert judge() == CrashVerdict(0)
    assert judge(ended(0, SliceOutcome.WORKED_THROUGH), ended(5)) == CrashVerdict(0)
    assert judge(ended(0)) == CrashVerdict(1)


@pytest.mark.parametrize("crashes", [2, 3, 4, 5, 6, 20])
def test_every_further_crash_doubles_the_pause_up_to_its_cap(crashes: int) -> None:
    expected = min(BACKOFF_SECONDS * 2 ** (crashes - 2), LONGEST_BACKOFF_SECONDS)
    assert judge(*[ended(0)] * crashes, most=100) == CrashVerdict(crashes, wait_seconds=expected)


def test_the_pause_runs_from_the_newest_crash_and_then_is_over() -> None:
    assert judge(ended(20), ended(500)).wait_seconds == BACKOFF_SECONDS - 20
    assert judge(ended(BACKOFF_SECONDS), ended(500)).wait_seconds == 0


def test_too_many_crashes_in_a_row_give_the_crawl_up() -> None:
    assert not judge(*[ended(0)] * 4).give_up
    assert judge(*[ended(9999)] * 5).give_up
    assert judge(ended(0), most=1).give_up


def test_crashes_before_a_slice_that_came_to_its_end_do_not_count() -> None:
    assert judge(ended(0), ended(1, SliceOutcome.WORKED_THROUGH), *[ended(2)] * 9) == CrashVerdict(1)


def test_crashes_before_anything_moved_do_not_count() -> None:
    """The slice that ended a task and crashed then counts; whatever was before it does not."""
    moved = NOW - timedelta(seconds=30)
    assert judge(ended(10), ended(40), ended(50), moved_at=moved) == CrashVerdict(1)
    assert judge(ended(40), ended(50), *[ended(60)] * 9, moved_at=moved) == CrashVerdict(0)


def test_runs_that_never_started_rest_the_crawl_but_never_give_it_up() -> None:
    """With every run worker away for an hour, no crawl may be failed for it."""
    unstarted = ended(0, SliceOutcome.NEVER_STARTED)
    assert judge(*[unstarted] * 50) == CrashVerdict(50, wait_seconds=LONGEST_BACKOFF_SECONDS)
    assert not judge(*[unstarted] * 9, *[ended(0)] * 4).give_up
    assert judge(unstarted, *[ended(0)] * 5).give_up


@pytest.mark.parametrize("outcome", [SliceOutcome.HALTED, SliceOutcome.STOPPED])
def test_a_slice_that_an_operator_ended_is_no_crash(outcome: SliceOutcome) -> None:
    assert judge(*[ended(0, outcome)] * 9) == CrashVerdict(0)


def test_a_crawl_that_failed_for_good_is_given_up_with_the_name_of_its_error() -> None:
    rules = CrashRules(5, BACKOFF_SECONDS, LONGEST_BACKOFF_SECONDS)
    other = BegunCrawl(uuid4(), "other", LONG_AGO)
    slices = {CRAWL.execution_id: [ended(0, SliceOutcome.FAILED_FOR_GOOD, "SettingsError")], other.execution_id: []}

    [resting] = resting_crawls([CRAWL, other], slices, rules, NOW)

    assert (resting.crawl, resting.verdict.give_up) == (CRAWL, True)
    assert resting.why == "given up, its last run failed for good with SettingsError"
    assert "look at the run run, mend the cause" in resting.reason
