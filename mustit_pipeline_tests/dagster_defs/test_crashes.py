"""A slice that crashes on a defect of ours is not requested again every few seconds, all day."""

import time
from collections.abc import Callable
from datetime import timedelta

import dagster as dg
import pytest
from sqlalchemy import text

from mustit_pipeline.crawling import steering
from mustit_pipeline.crawling.sql import slices
from mustit_pipeline.crawling.sql.slices import EndedSlice
from mustit_pipeline.crawling.steering import find
from mustit_pipeline.defs.crawl.crashes import slice_outcome
from mustit_pipeline.defs.crawl.due import due_crawls
from mustit_pipeline.defs.failures import StepFailure
from mustit_pipeline.defs.run_tags import EXECUTION_TAG
from mustit_pipeline.domain.states import ExecutionStatus, SliceOutcome
from mustit_pipeline.domain.values import ExecutionId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.simulator.control import MarketplaceControl
from mustit_pipeline.simulator.process import RunningSimulator
from mustit_pipeline_tests.dagster_defs.conftest import SetEnvironment, Tick, ended_slices, keys, run_job
from mustit_pipeline_tests.integration.crawls import register

Crash = Callable[..., None]


@pytest.fixture
def begun(database: Database, tick: Tick) -> ExecutionId:
    """A due seller's execution, whose first slice has been requested; it was opened an hour ago."""
    register(database, "dmont")
    [request] = tick(due_crawls).run_requests
    with database.transaction() as connection:
        connection.execute(text("UPDATE crawling_schedule_executions SET updated_at = now() - interval '1 hour'"))
    return ExecutionId(request.tags[EXECUTION_TAG])


@pytest.fixture
def crash(database: Database, instance: dg.DagsterInstance, begun: ExecutionId) -> Crash:
    """A run of that execution which failed so many seconds ago, after it had started or before.

    It has said what it came to, or has not.
    """

    def add(seconds_ago: float, *, started: bool = True, said: SliceOutcome | None = None) -> None:
        run = dg.DagsterRun(
            job_name="crawl_seller",
            status=dg.DagsterRunStatus.STARTING,
            tags={"dagster/partition": "dmont", EXECUTION_TAG: str(begun)},
        )
        instance.add_run(run)
        for event in ("PIPELINE_START", "PIPELINE_FAILURE") if started else ("PIPELINE_FAILURE",):
            reported = dg.DagsterEvent(event_type_value=event, job_name="crawl_seller")
            instance.report_dagster_event(reported, run_id=run.run_id, timestamp=time.time() - seconds_ago)
        if said is not None:
            ended = EndedSlice(run.run_id, begun.value, said, utc_now() - timedelta(seconds=seconds_ago))
            with database.transaction() as connection:
                slices.record(connection, [ended])

    return add


def test_after_one_crash_the_crawl_goes_on_at_once_after_a_second_it_rests(tick: Tick, crash: Crash) -> None:
    crash(100)
    assert keys(tick(due_crawls).run_requests) == ["dmont"]

    crash(5)
    outcome = tick(due_crawls)

    assert not outcome.run_requests
    assert "dmont rests: 2 crashes in a row, next try in 5" in outcome.skip_message


def test_a_crawl_that_has_rested_long_enough_is_tried_again(tick: Tick, crash: Crash) -> None:
    crash(200)
    crash(61)
    assert keys(tick(due_crawls).run_requests) == ["dmont"]


def test_a_resting_crawl_takes_no_slot_from_others(
    database: Database, tick: Tick, crash: Crash, set_environment: SetEnvironment
) -> None:
    crash(5)
    crash(5)
    set_environment(crawls_at_once=1)
    register(database, "other")
    assert keys(tick(due_crawls).run_requests) == ["other"]


def test_a_crawl_whose_runs_are_not_taken_waits_for_an_operator(
    database: Database, tick: Tick, crash: Crash, begun: ExecutionId
) -> None:
    """Every run worker is away: the runs time out before they start, and that is not the crawl's fault."""
    for _ in range(20):
        crash(700, started=False)

    assert keys(tick(due_crawls).run_requests) == ["dmont"]
    assert find(database, begun).execution.is_open


def test_a_crawl_that_crashes_too_often_is_failed_with_its_reason_and_can_be_resumed(
    database: Database, tick: Tick, crash: Crash, begun: ExecutionId
) -> None:
    for _ in range(5):
        crash(2)

    outcome = tick(due_crawls)

    assert "dmont rests: given up after 5 crashes in a row" in outcome.skip_message
    failed = find(database, begun).execution
    assert (failed.status, failed.error_code) == (ExecutionStatus.FAILED, "SLICE_CRASHED")
    assert "5 runs in a row crashed" in str(failed.error_text)
    assert not tick(due_crawls).run_requests

    steering.resume(database, begun)
    [request] = tick(due_crawls).run_requests
    assert request.tags[EXECUTION_TAG] == str(begun)


def test_a_crawl_that_gets_further_before_each_crash_goes_on(database: Database, tick: Tick, crash: Crash) -> None:
    """A process that is killed again and again is no reason to give up what it has come to."""
    for _ in range(9):
        crash(100)
    with database.transaction() as connection:
        connection.execute(text("UPDATE crawling_schedule_executions SET updated_at = now() - interval '50 seconds'"))
    crash(40)
    assert keys(tick(due_crawls).run_requests) == ["dmont"]


def test_a_red_run_whose_slice_came_to_its_end_is_no_crash(tick: Tick, crash: Crash) -> None:
    for _ in range(9):
        crash(1, said=SliceOutcome.WORKED_THROUGH)
    assert keys(tick(due_crawls).run_requests) == ["dmont"]


@pytest.mark.parametrize(
    ("status", "started", "for_good", "outcome"),
    [
        (dg.DagsterRunStatus.SUCCESS, True, None, SliceOutcome.WORKED_THROUGH),
        (dg.DagsterRunStatus.CANCELED, True, None, SliceOutcome.STOPPED),
        (dg.DagsterRunStatus.CANCELED, False, None, SliceOutcome.STOPPED),
        (dg.DagsterRunStatus.FAILURE, False, None, SliceOutcome.NEVER_STARTED),
        (dg.DagsterRunStatus.FAILURE, True, None, SliceOutcome.CRASHED),
        (dg.DagsterRunStatus.FAILURE, True, "SettingsError", SliceOutcome.FAILED_FOR_GOOD),
    ],
)
def test_a_run_that_said_nothing_of_its_slice_is_judged_by_how_it_ended(
    status: dg.DagsterRunStatus, started: bool, for_good: str | None, outcome: SliceOutcome
) -> None:
    failure = StepFailure("minishop_listings", "said", "Failure", for_good)

    assert slice_outcome(status, failure, started=started) is outcome
    if for_good is None:
        assert slice_outcome(status, None, started=started) is outcome, "a killed process leaves no failure"


def test_what_a_run_said_of_its_slice_stays_whatever_the_sensor_finds(
    database: Database, tick: Tick, crash: Crash
) -> None:
    crash(1, said=SliceOutcome.HALTED)
    crash(1)

    tick(due_crawls)

    found = {one.outcome for one in ended_slices(database, "dmont")}
    assert found == {SliceOutcome.HALTED, SliceOutcome.CRASHED}


def test_a_real_run_says_whether_it_crashed_or_only_had_failed_tasks(
    database: Database,
    instance: dg.DagsterInstance,
    tick: Tick,
    set_environment: SetEnvironment,
    marketplace: RunningSimulator,
    market: MarketplaceControl,
) -> None:
    set_environment(base_url=marketplace.url, slice_max_crashes=2)
    market.add_seller("dmont", 2)
    market.fault("status", "options", itemNo=market.products("dmont")[0]["itemNo"], status=404)
    register(database, "dmont")

    def slice_run() -> dg.DagsterRun:
        [request] = tick(due_crawls).run_requests
        result = run_job(instance, "crawl_seller", "dmont", tags=dict(request.tags))
        found = instance.get_run_by_id(result.run_id)
        assert found is not None
        return found

    with database.transaction() as connection:
        connection.execute(text("ALTER TABLE product_outbox RENAME TO elsewhere"))
    broken = slice_run()
    with database.transaction() as connection:
        connection.execute(text("ALTER TABLE elsewhere RENAME TO product_outbox"))
    red = slice_run()

    assert [run.status for run in (broken, red)] == [dg.DagsterRunStatus.FAILURE] * 2
    assert [(one.run_id, one.outcome) for one in ended_slices(database, "dmont")] == [
        (red.run_id, SliceOutcome.WORKED_THROUGH),
        (broken.run_id, SliceOutcome.CRASHED),
    ]


def test_the_reason_names_the_last_error_and_its_run_but_not_the_errors_text(
    database: Database,
    instance: dg.DagsterInstance,
    tick: Tick,
    set_environment: SetEnvironment,
    marketplace: RunningSimulator,
    market: MarketplaceControl,
) -> None:
    set_environment(base_url=marketplace.url, slice_max_crashes=1)
    market.add_seller("dmont", 1)
    register(database, "dmont")
    [request] = tick(due_crawls).run_requests
    with database.transaction() as connection:
        connection.execute(text("ALTER TABLE product_raw_data RENAME TO elsewhere"))
    result = run_job(instance, "crawl_seller", "dmont", tags=dict(request.tags))

    tick(due_crawls)

    reason = find(database, ExecutionId(request.tags[EXECUTION_TAG])).execution.error_text
    assert reason is not None
    assert result.run_id in reason
    assert "UndefinedTable" in reason
    assert "product_raw_data" not in reason
