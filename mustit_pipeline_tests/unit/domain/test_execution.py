"""Executions: counting tasks, rates and the end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustit_pipeline.domain.errors import InvariantViolated, ValidationFailed
from mustit_pipeline.domain.states import ExecutionStatus
from mustit_pipeline_tests.unit.domain.builders import LATER, T0, execution

RUNNING = ExecutionStatus.RUNNING
OPEN = {ExecutionStatus.PENDING, ExecutionStatus.RUNNING, ExecutionStatus.PAUSED}


def test_a_started_execution_knows_its_tasks_and_its_time() -> None:
    started = execution()
    started.start(7, LATER)
    assert (started.status, started.total_tasks, started.remaining, started.started_at) == (RUNNING, 7, 7, LATER)


@pytest.mark.parametrize("status", ExecutionStatus)
def test_an_execution_is_open_until_it_has_ended(status: ExecutionStatus) -> None:
    assert execution(status=status).is_open is (status in OPEN)


def test_rates_are_percent() -> None:
    running = execution(status=RUNNING, total_tasks=8, completed_tasks=3, failed_tasks=1)
    assert (running.progress_rate, running.success_rate, running.remaining) == (50.0, 75.0, 4)


def test_rates_are_zero_where_there_is_nothing_to_divide_by() -> None:
    assert (execution().progress_rate, execution().success_rate) == (0.0, 0.0)
    assert execution(total_tasks=5).success_rate == 0.0


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_rates_stay_between_0_and_100(completed: int, failed: int, remaining: int) -> None:
    total = completed + failed + remaining
    running = execution(status=RUNNING, total_tasks=total, completed_tasks=completed, failed_tasks=failed)
    assert running.remaining == remaining
    assert 0 <= running.progress_rate <= 100
    assert 0 <= running.success_rate <= 100
    if total:
        assert (running.progress_rate == 100) == (remaining == 0)


def test_a_negative_number_of_tasks_is_refused() -> None:
    with pytest.raises(ValidationFailed) as refused:
        execution().start(-1, T0)
    assert refused.value.code == "VALIDATION_EXECUTION_COUNT"


def test_an_execution_completes_only_when_every_task_has_ended() -> None:
    running = execution(status=RUNNING, total_tasks=2, completed_tasks=1)
    with pytest.raises(InvariantViolated) as refused:
        running.complete(LATER)
    assert refused.value.code == "INVARIANT_EXECUTION_UNFINISHED"
    assert running.status is RUNNING
    done = execution(status=RUNNING, total_tasks=2, completed_tasks=1, failed_tasks=1)
    done.complete(LATER)
    assert (done.status, done.ended_at) == (ExecutionStatus.COMPLETED, LATER)


def test_a_failed_execution_says_why_and_goes_on_from_what_is_stored() -> None:
    failed = execution(status=RUNNING, total_tasks=9, completed_tasks=4)
    failed.fail("the count call answered 500", LATER, code="NO_PLAN")
    assert (failed.error_code, failed.error_text, failed.ended_at) == ("NO_PLAN", "the count call answered 500", LATER)
    failed.resume()
    assert (failed.error_code, failed.error_text, failed.ended_at) == (None, None, None)
    assert (failed.status, failed.completed_tasks, failed.remaining) == (RUNNING, 4, 5)


def test_a_paused_execution_goes_on_where_it_stopped() -> None:
    paused = execution(status=RUNNING, total_tasks=3)
    paused.pause()
    assert (paused.status, paused.is_open) == (ExecutionStatus.PAUSED, True)
    paused.resume()
    assert (paused.status, paused.remaining) == (RUNNING, 3)


def test_a_cancelled_execution_has_ended() -> None:
    cancelled = execution(status=RUNNING, total_tasks=3)
    cancelled.cancel(LATER)
    assert (cancelled.is_open, cancelled.ended_at, cancelled.remaining) == (False, LATER, 3)
