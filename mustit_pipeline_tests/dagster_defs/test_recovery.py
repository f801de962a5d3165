"""Stuck work as Dagster sees it: a tick each minute that starts a run only where there is something to do."""

import time
from collections.abc import Callable, Generator

import dagster as dg
import pytest
from sqlalchemy import text

from mustit_pipeline.crawling.steering import open_or_join
from mustit_pipeline.definitions import defs
from mustit_pipeline.defs.resources import RESOURCES
from mustit_pipeline.defs.upkeep.recovery import recover_every_minute
from mustit_pipeline.domain.states import OutboxStatus, TaskStatus
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline_tests.dagster_defs.conftest import GRACE_SECONDS, AddRun, SetEnvironment
from mustit_pipeline_tests.integration.crawls import register
from mustit_pipeline_tests.integration.rows import add_outbox, add_task, ground

Status = dg.DagsterRunStatus
Minute = Callable[[], dg.RunRequest | dg.SkipReason]


@pytest.fixture
def instance() -> Generator[dg.DagsterInstance]:
    """A schedule's context opens its instance anew, which an ephemeral one does not allow."""
    with dg.instance_for_test() as kept:
        yield kept


@pytest.fixture
def minute(instance: dg.DagsterInstance, set_environment: SetEnvironment) -> Minute:
    """Evaluate the schedule once, as the daemon does."""

    def evaluate() -> dg.RunRequest | dg.SkipReason:
        with dg.build_schedule_context(instance=instance, resources=RESOURCES) as context:
            answer = recover_every_minute(context)
        assert isinstance(answer, dg.RunRequest | dg.SkipReason)
        return answer

    return evaluate


def left_behind(database: Database) -> None:
    standing = ground(database)
    with database.transaction() as connection:
        add_task(connection, standing.home, TaskStatus.IN_PROGRESS, 1, expires="-1 second")
        add_outbox(connection, OutboxStatus.SENDING, 1)


def test_no_run_is_started_while_nothing_is_stuck(
    minute: Minute,
) -> None:
    answer = minute()
    assert isinstance(answer, dg.SkipReason)
    assert answer.skip_message == "nothing is stuck"


def test_stuck_work_starts_one_run_at_a_time(
    database: Database,
    minute: Minute,
    add_run: AddRun,
) -> None:
    left_behind(database)
    assert isinstance(minute(), dg.RunRequest)

    add_run(None, Status.STARTED, job="recover_stuck_work")
    answer = minute()
    assert isinstance(answer, dg.SkipReason)
    assert "running already" in str(answer.skip_message)


@pytest.mark.usefixtures("set_environment")
def test_the_job_sets_stuck_work_free_and_says_how_much(
    database: Database, instance: dg.DagsterInstance, add_run: AddRun
) -> None:
    left_behind(database)
    add_run("killed", Status.STARTED, started_at=time.time() - GRACE_SECONDS - 1)

    result = defs.resolve_job_def("recover_stuck_work").execute_in_process(instance=instance)

    totals = {
        "released_tasks": 1,
        "completed_executions": 0,
        "released_events": 1,
        "recovered_agents": 0,
        "processed_sellers": 0,
        "failed_runs": 1,
    }
    assert result.output_for_node("recover_what_is_stuck") == totals
    [output] = [event.step_output_data for event in result.all_events if event.is_successful_output]
    assert {name: value.value for name, value in output.metadata.items()} == totals
    again = defs.resolve_job_def("recover_stuck_work").execute_in_process(instance=instance)
    assert set(again.output_for_node("recover_what_is_stuck").values()) == {0}


def test_how_long_a_run_may_take_to_be_seen_alive_is_a_setting(
    instance: dg.DagsterInstance, add_run: AddRun, set_environment: SetEnvironment
) -> None:
    set_environment(run_grace_seconds=300)
    add_run("slow to start", Status.STARTED, started_at=time.time() - GRACE_SECONDS - 1)

    result = defs.resolve_job_def("recover_stuck_work").execute_in_process(instance=instance)

    assert result.output_for_node("recover_what_is_stuck")["failed_runs"] == 0


@pytest.mark.usefixtures("set_environment")
def test_a_crawl_that_a_run_is_ending_is_not_ended_under_it(
    database: Database, instance: dg.DagsterInstance, add_run: AddRun
) -> None:
    register(database, "dmont")
    open_or_join(database, SellerId("dmont"), triggered_by="test", now=utc_now())
    with database.transaction() as connection:
        connection.execute(
            text(
                "UPDATE crawling_schedule_executions SET status = 'RUNNING', sweep_status = 'COMPLETE', "
                "updated_at = now() - interval '1 hour'"
            )
        )
    run = add_run("dmont", Status.STARTED, started_at=time.time())
    job = defs.resolve_job_def("recover_stuck_work")

    held = job.execute_in_process(instance=instance).output_for_node("recover_what_is_stuck")
    instance.report_run_failed(run)
    freed = job.execute_in_process(instance=instance).output_for_node("recover_what_is_stuck")

    assert (held["completed_executions"], freed["completed_executions"]) == (0, 1)
