"""Tasks: three attempts, five releases, and a cancelled one stays ended."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustit_pipeline.domain.errors import InvariantViolated
from mustit_pipeline.domain.states import TaskStatus, TaskType
from mustit_pipeline.domain.task import CANCELLED, RELEASED_TOO_OFTEN, CrawlerTask
from mustit_pipeline_tests.unit.domain.builders import DETAIL_URL, LATER, T0, task


def run_attempt(attempted: CrawlerTask) -> None:
    attempted.start(T0)
    attempted.fail("timeout", LATER)


def test_a_planned_task_waits_and_takes_its_type_from_its_url() -> None:
    planned = task()
    assert (planned.status, planned.task_type) == (TaskStatus.WAITING, TaskType.PRODUCT_DETAIL)
    assert (planned.request_url, planned.created_at, planned.attempts) == (DETAIL_URL, T0, 0)


def test_a_task_remembers_when_it_was_published_started_and_completed() -> None:
    done = task()
    done.publish(T0)
    done.start(T0)
    done.complete(LATER)
    assert (done.published_at, done.started_at, done.completed_at, done.attempts) == (T0, T0, LATER, 1)


def test_a_task_has_three_attempts_in_all() -> None:
    failing = task(status=TaskStatus.PUBLISHED)
    for attempt in (1, 2, 3):
        run_attempt(failing)
        assert failing.attempts == attempt
        assert failing.can_retry() is (attempt < 3)
        if failing.can_retry():
            failing.retry()
    with pytest.raises(InvariantViolated) as refused:
        failing.retry()
    assert refused.value.code == "INVARIANT_TASK_RETRIES_EXCEEDED"
    assert refused.value.korean == "재시도 횟수를 초과했습니다 (최대 2회)"
    assert (failing.status, failing.retry_count) == (TaskStatus.FAILED, 2)


@given(st.integers(0, 10))
def test_the_number_of_attempts_is_one_more_than_the_allowed_retries(max_retries: int) -> None:
    failing = task(status=TaskStatus.PUBLISHED, max_retries=max_retries)
    run_attempt(failing)
    while failing.can_retry():
        failing.retry()
        failing.republish(T0)
        run_attempt(failing)
    assert failing.attempts == max_retries + 1
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


def test_a_release_spends_no_attempt() -> None:
    taken = task(status=TaskStatus.PUBLISHED)
    taken.start(T0)
    assert taken.attempts == 1
    taken.release(LATER)
    assert (taken.status, taken.retry_count, taken.attempts) == (TaskStatus.PUBLISHED, 0, 0)
    assert taken.published_at == LATER


def test_the_fifth_release_in_a_row_fails_the_task() -> None:
    taken = task(status=TaskStatus.PUBLISHED)
    for _ in range(4):
        taken.start(T0)
        assert taken.can_release()
        taken.release(T0)
        assert taken.status is TaskStatus.PUBLISHED
    taken.start(T0)
    assert not taken.can_release()
    taken.release(LATER)
    assert (taken.status, taken.error_code, taken.completed_at) == (TaskStatus.FAILED, RELEASED_TOO_OFTEN, LATER)
    assert taken.error_text == "released 5 times in a row"
    assert taken.can_retry()


@given(st.integers(1, 10))
def test_the_number_of_releases_is_a_limit_of_the_task(max_releases: int) -> None:
    taken = task(status=TaskStatus.PUBLISHED, max_releases=max_releases)
    rounds = 0
    while taken.status is TaskStatus.PUBLISHED:
        taken.start(T0)
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


@pytest.mark.parametrize("status", [TaskStatus.WAITING, TaskStatus.PUBLISHED, TaskStatus.IN_PROGRESS, TaskStatus.RETRY])
def test_a_cancelled_task_ends_for_good(status: TaskStatus) -> None:
    cancelled = task(status=status, release_count=2)
    cancelled.cancel(LATER)
    assert (cancelled.status, cancelled.error_code, cancelled.error_text) == (TaskStatus.FAILED, CANCELLED, "CANCELLED")
    assert (cancelled.completed_at, cancelled.release_count) == (LATER, 0)
    assert not cancelled.can_retry()


def test_a_task_that_went_round_too_often_says_so() -> None:
    lost = task(status=TaskStatus.PUBLISHED)
    lost.exhaust("received 3 times", LATER)
    assert (lost.error_code, lost.error_text) == (RELEASED_TOO_OFTEN, "received 3 times")
