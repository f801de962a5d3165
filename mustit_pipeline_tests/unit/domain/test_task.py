"""Tasks: three attempts and five releases."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustit_pipeline.domain.errors import InvariantViolated
from mustit_pipeline.domain.states import TaskStatus
from mustit_pipeline.domain.task import RELEASED_TOO_OFTEN, CrawlerTask
from mustit_pipeline_tests.unit.domain.builders import LATER, T0, task


def start_again(ended: CrawlerTask) -> CrawlerTask:
    """The task as its next worker leases it; the claim itself is SQL."""
    return replace(ended, status=TaskStatus.IN_PROGRESS, started_at=T0)


def test_a_task_has_three_attempts_in_all() -> None:
    failing = task()
    for attempt in (1, 2, 3):
        failing.fail("timeout", LATER)
        assert failing.can_retry() is (attempt < 3)
        if failing.can_retry():
            failing.retry()
            failing = start_again(failing)
    with pytest.raises(InvariantViolated) as refused:
        failing.retry()
    assert refused.value.code == "INVARIANT_TASK_RETRIES_EXCEEDED"
    assert refused.value.korean == "재시도 횟수를 초과했습니다 (최대 2회)"
    assert (failing.status, failing.retry_count) == (TaskStatus.FAILED, 2)


@given(st.integers(0, 10))
def test_the_number_of_attempts_is_one_more_than_the_allowed_retries(max_retries: int) -> None:
    failing = task(max_retries=max_retries)
    failing.fail("timeout", LATER)
    attempts = 1
    while failing.can_retry():
        failing.retry()
        failing = start_again(failing)
        failing.fail("timeout", LATER)
        attempts += 1
    assert attempts == max_retries + 1
    assert failing.retry_count == max_retries
    with pytest.raises(InvariantViolated, match=f"at most {max_retries}"):
        failing.retry()


def test_a_retry_clears_the_error() -> None:
    failing = task(status=TaskStatus.IN_PROGRESS)
    failing.fail("timeout", LATER, code="EXTERNAL_TIMEOUT")
    assert (failing.error_code, failing.error_text, failing.completed_at) == ("EXTERNAL_TIMEOUT", "timeout", LATER)
    failing.retry()
    assert (failing.error_code, failing.error_text, failing.completed_at) == (None, None, None)
    assert failing.status is TaskStatus.RETRY


@pytest.mark.parametrize("status", TaskStatus)
def test_only_a_failed_task_can_retry(status: TaskStatus) -> None:
    assert task(status=status).can_retry() is (status is TaskStatus.FAILED)


def test_a_permanent_failure_is_never_retried() -> None:
    failing = task(status=TaskStatus.IN_PROGRESS)
    failing.fail("gone", LATER, permanent=True)
    assert not failing.can_retry()
    with pytest.raises(InvariantViolated) as refused:
        failing.retry()
    assert refused.value.code == "INVARIANT_TASK_PERMANENT"
    assert (failing.status, failing.error_text) == (TaskStatus.FAILED, "gone")


def test_a_release_spends_no_retry() -> None:
    taken = task(started_at=T0, published_at=T0)
    taken.release(LATER)
    assert (taken.status, taken.retry_count, taken.started_at) == (TaskStatus.PUBLISHED, 0, None)
    assert taken.published_at == LATER


def test_the_fifth_release_in_a_row_fails_the_task() -> None:
    taken = task()
    for _ in range(4):
        assert taken.can_release()
        taken.release(T0)
        assert taken.status is TaskStatus.PUBLISHED
        taken = start_again(taken)
    assert not taken.can_release()
    taken.release(LATER)
    assert (taken.status, taken.error_code, taken.completed_at) == (TaskStatus.FAILED, RELEASED_TOO_OFTEN, LATER)
    assert taken.error_text == "released 5 times in a row"
    assert taken.can_retry()


@given(st.integers(1, 10))
def test_the_number_of_releases_is_a_limit_of_the_task(max_releases: int) -> None:
    taken = task(max_releases=max_releases)
    rounds = 1
    taken.release(T0)
    while taken.status is TaskStatus.PUBLISHED:
        taken = start_again(taken)
        taken.release(T0)
        rounds += 1
    assert rounds == max_releases
    assert taken.status is TaskStatus.FAILED


@pytest.mark.parametrize("end", [lambda t: t.complete(LATER), lambda t: t.fail("timeout", LATER)])
def test_an_attempt_that_ends_also_ends_the_row_of_releases(end) -> None:
    taken = task(status=TaskStatus.IN_PROGRESS, release_count=4)
    end(taken)
    assert taken.release_count == 0


@pytest.mark.parametrize("status", TaskStatus)
def test_only_a_task_in_progress_can_be_released(status: TaskStatus) -> None:
    assert task(status=status).can_release() is (status is TaskStatus.IN_PROGRESS)


def test_a_task_that_went_round_too_often_says_so() -> None:
    lost = task(status=TaskStatus.PUBLISHED)
    lost.exhaust("received 3 times", LATER)
    assert (lost.error_code, lost.error_text) == (RELEASED_TOO_OFTEN, "received 3 times")
