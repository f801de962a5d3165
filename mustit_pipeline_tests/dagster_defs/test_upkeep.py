"""What runs by the clock: days that are measured, full refreshes in free slots, and nightly housekeeping."""

from collections.abc import Callable, Generator
from datetime import UTC, date, datetime, timedelta

import dagster as dg
import pytest
from sqlalchemy import text

from mustit_pipeline.crawling.sql import executions, task_months
from mustit_pipeline.definitions import defs
from mustit_pipeline.defs.liveness import busy_sellers
from mustit_pipeline.defs.resources import RESOURCES
from mustit_pipeline.domain.states import OutboxStatus
from mustit_pipeline.domain.values import ExecutionId
from mustit_pipeline.foundation.database import Database
from mustit_pipeline_tests.dagster_defs.conftest import AddRun, SetEnvironment, TickOutcome
from mustit_pipeline_tests.integration.crawls import register
from mustit_pipeline_tests.integration.rows import add_outbox, ground

Status = dg.DagsterRunStatus
TICK = datetime(2026, 11, 15, 15, 10, tzinfo=UTC)
MONTH_AGO = TICK - timedelta(days=30)
Evaluate = Callable[[str], TickOutcome]


@pytest.fixture
def instance() -> Generator[dg.DagsterInstance]:
    """A schedule's context opens its instance anew, which an ephemeral one does not allow."""
    with dg.instance_for_test() as kept:
        yield kept


@pytest.fixture
def evaluate(instance: dg.DagsterInstance, set_environment: SetEnvironment) -> Evaluate:
    """Evaluate a schedule of the repository at a time, as the daemon does."""

    def tick(name: str) -> TickOutcome:
        repository = defs.get_repository_def()
        with dg.build_schedule_context(
            instance=instance,
            scheduled_execution_time=TICK,
            resources=RESOURCES,
            repository_def=repository,
        ) as context:
            data = repository.get_schedule_def(name).evaluate_tick(context)
        return TickOutcome(list(data.run_requests or []), data.skip_message or "")

    return tick


def registered(database: Database, *seller_ids: str) -> None:
    register(database, *seller_ids)
    with database.transaction() as connection:
        connection.execute(text("UPDATE sellers SET created_at = :at"), {"at": MONTH_AGO})


def test_after_midnight_in_seoul_yesterday_is_measured(evaluate: Evaluate) -> None:
    """15:10 UTC is ten past midnight of the next day in Seoul."""
    [request] = evaluate("daily_metrics").run_requests

    assert (request.partition_key, request.run_key) == ("2026-11-15", "2026-11-15:2026-11-16")
    assert request.tags["dagster/partition"] == "2026-11-15"


def test_a_day_whose_crawl_went_on_is_measured_again_with_a_key_of_its_own(
    database: Database, instance: dg.DagsterInstance, evaluate: Evaluate
) -> None:
    registered(database, "dmont")
    measured(instance, MONTH_AGO.date(), 31)
    with database.transaction() as connection:
        connection.execute(
            text("""
                INSERT INTO crawling_schedule_executions (execution_id, seller_id, schedule_id, status, triggered_by,
                                                          task_month, sweep_status, started_at, ended_at)
                SELECT gen_random_uuid(), seller_id, schedule_id, 'COMPLETED', 'test', '2026-11-01', 'COMPLETE',
                       :started, :ended FROM crawling_schedules
            """),
            {"started": TICK - timedelta(days=2), "ended": TICK - timedelta(hours=20)},
        )

    first, again = (evaluate("daily_metrics").run_requests for _ in range(2))

    assert [request.partition_key for request in first] == ["2026-11-14", "2026-11-15"]
    assert [request.run_key for request in first] == [request.run_key for request in again]


def measured(instance: dg.DagsterInstance, first: date, number: int) -> None:
    """Days in a row whose metrics are kept."""
    for day in (first + timedelta(days=after) for after in range(number)):
        instance.report_runless_asset_event(dg.AssetMaterialization("daily_crawl_metrics", partition=day.isoformat()))


def test_days_whose_tick_an_outage_swallowed_are_measured_with_the_next_one(
    database: Database, instance: dg.DagsterInstance, evaluate: Evaluate
) -> None:
    """The daemon makes up for the last missed tick only; the others used to leave no file and no alert."""
    registered(database, "dmont")
    measured(instance, date(2026, 11, 1), 12)

    requests = evaluate("daily_metrics").run_requests

    assert [request.partition_key for request in requests] == ["2026-11-13", "2026-11-14", "2026-11-15"]


def test_the_lake_gets_yesterday_and_the_days_of_the_last_week_that_it_lacks(
    database: Database, instance: dg.DagsterInstance, evaluate: Evaluate
) -> None:
    registered(database, "dmont")
    for key, last in (("product_catalog", 14), ("product_changes", 12)):
        for day in range(1, last + 1):
            stored = dg.AssetMaterialization(key, partition=f"2026-11-{day:02}")
            instance.report_runless_asset_event(stored)

    requests = evaluate("daily_lake").run_requests

    assert [request.partition_key for request in requests] == ["2026-11-13", "2026-11-14", "2026-11-15"]
    assert requests[0].run_key == "2026-11-13:2026-11-16"


def test_before_the_first_seller_the_lake_gets_yesterday_alone(evaluate: Evaluate) -> None:
    [request] = evaluate("daily_lake").run_requests

    assert request.partition_key == "2026-11-15"


def test_a_full_refresh_starts_as_a_run_of_its_own_execution_in_a_new_partition(
    database: Database, instance: dg.DagsterInstance, evaluate: Evaluate
) -> None:
    registered(database, "한글 & a/b 50%")

    [request] = evaluate("weekly_full_refresh").run_requests

    execution_id = request.tags["mustit/execution"]
    with database.reading() as connection:
        stored = executions.get(connection, ExecutionId(execution_id))
    assert (stored.full_refetch, stored.execution.seller_id.value) == (True, "한글 & a/b 50%")
    assert (request.partition_key, request.run_key) == ("한글 & a/b 50%", f"{execution_id}:1")
    assert instance.has_dynamic_partition("sellers", "한글 & a/b 50%")
    assert "within 7 days" in evaluate("weekly_full_refresh").skip_message


def test_full_refreshes_take_only_slots_that_are_free_and_say_who_waits(
    database: Database, evaluate: Evaluate, add_run: AddRun
) -> None:
    registered(database, "a", "b", "c")
    for number in range(3):
        add_run(f"busy {number}", Status.STARTED)

    assert len(evaluate("weekly_full_refresh").run_requests) == 1

    add_run("busy 3", Status.STARTED)
    assert evaluate("weekly_full_refresh").skip_message == (
        "all 4 crawl slots are busy; 2 sellers wait for a full refresh"
    )


def test_the_full_refresh_leaves_sellers_that_wait_in_a_backfill_to_it(
    database: Database, instance: dg.DagsterInstance, evaluate: Evaluate
) -> None:
    registered(database, "a", "b")
    tags = {"dagster/partition": "a", "dagster/backfill": "abcdefgh"}
    instance.add_run(dg.DagsterRun(job_name="__ASSET_JOB", status=Status.NOT_STARTED, tags=tags))

    assert [request.partition_key for request in evaluate("weekly_full_refresh").run_requests] == ["b"]


@pytest.mark.parametrize(
    ("schedule", "job"), [("check_every_hour", "check_criteria"), ("nightly_maintenance", "maintain_storage")]
)
def test_ticks_that_come_together_start_one_run(evaluate: Evaluate, add_run: AddRun, schedule: str, job: str) -> None:
    assert len(evaluate(schedule).run_requests) == 1

    add_run(None, Status.NOT_STARTED, job=job)
    outcome = evaluate(schedule)

    assert not outcome.run_requests
    assert "running already" in outcome.skip_message


def test_a_tick_that_the_daemon_was_killed_in_goes_on_with_its_own_run(
    evaluate: Evaluate, instance: dg.DagsterInstance
) -> None:
    """Judged again it must ask for the same run, which the daemon then submits; otherwise the night would be lost."""
    tags = {".dagster/scheduled_execution_time": TICK.isoformat()}
    instance.add_run(dg.DagsterRun(job_name="maintain_storage", status=Status.NOT_STARTED, tags=tags))

    assert len(evaluate("nightly_maintenance").run_requests) == 1


@pytest.mark.parametrize(
    "name",
    [
        *("check_criteria", "maintain_storage", "measure_days"),
        *("relay_product_outbox", "relay_scheduler_outbox", "recover_stuck_work"),
    ],
)
def test_a_run_that_others_wait_for_has_an_end(name: str) -> None:
    """One at a time: it would keep all others waiting, and the guards would call that running already."""
    assert int(defs.resolve_job_def(name).run_tags["dagster/max_runtime"]) > 0


def test_the_clock_starts_no_relay_that_could_send_nothing(
    database: Database, evaluate: Evaluate, set_environment: SetEnvironment, add_run: AddRun
) -> None:
    assert evaluate("relay_every_5_minutes").skip_message == "no product event waits"

    ground(database)
    with database.transaction() as connection:
        add_outbox(connection, OutboxStatus.WAITING, 1)
    assert "MUSTIT_PRODUCT_SERVER_URL" in evaluate("relay_every_5_minutes").skip_message

    set_environment(product_server_url="http://127.0.0.1:9")
    assert len(evaluate("relay_every_5_minutes").run_requests) == 1

    add_run(None, Status.NOT_STARTED, job="relay_product_outbox")
    assert evaluate("relay_every_5_minutes").skip_message == "a relay is running already"


def test_runs_that_measure_days_keep_no_seller_busy() -> None:
    """A backfill of a hundred days would otherwise take every crawl slot."""
    day, both = frozenset({dg.AssetKey("daily_crawl_metrics")}), {"dagster/partition": "2026-11-15"}
    runs = [
        dg.DagsterRun(job_name="measure_days", tags=both),
        dg.DagsterRun(job_name="__ASSET_JOB", tags=both, asset_selection=day),
        dg.DagsterRun(
            job_name="__ASSET_JOB",
            tags={"dagster/partition": "dmont"},
            asset_selection=frozenset({dg.AssetKey("product_details")}),
        ),
    ]

    assert busy_sellers(runs) == {"dmont"}


@pytest.mark.usefixtures("set_environment")
def test_the_maintenance_job_says_what_it_did_and_a_dry_run_does_nothing(
    database: Database, instance: dg.DagsterInstance
) -> None:
    job = defs.resolve_job_def("maintain_storage")

    def told(**config: object) -> dict[str, object]:
        result = job.execute_in_process(
            instance=instance, run_config={"ops": {"keep_what_is_needed": {"config": config}}}
        )
        [output] = [event.step_output_data for event in result.all_events if event.is_successful_output]
        return {name: value.value for name, value in output.metadata.items()}

    dry = told(dry_run=True)
    with database.reading() as connection:
        assert task_months.partitions(connection) == []
    done = told()

    assert dry == done
    assert done["months_added"] != "none"
    assert told()["months_added"] == "none"
