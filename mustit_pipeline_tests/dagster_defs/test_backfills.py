"""What a backfill's runs do, one per seller, with the config that its dialog was given."""

from typing import Any

import dagster as dg
import pytest
from sqlalchemy import text

from mustit_pipeline.crawling import steering
from mustit_pipeline.crawling.steering import deactivate_seller, open_or_join
from mustit_pipeline.definitions import defs
from mustit_pipeline.defs.crawl.due import due_crawls
from mustit_pipeline.defs.crawl.slices import Mode
from mustit_pipeline.domain.states import ExecutionStatus
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.settings import Settings
from mustit_pipeline.simulator.control import MarketplaceControl
from mustit_pipeline.simulator.process import RunningSimulator
from mustit_pipeline_tests.dagster_defs.conftest import (
    SetEnvironment,
    Stock,
    Tick,
    failure,
    keys,
    latest,
    materialized,
    run_job,
)
from mustit_pipeline_tests.integration.crawls import register

Status = dg.DagsterRunStatus
SELLER = "한글 & a/b 50%"
PRODUCTS = 4
CHECKS_OF = {"minishop_listings": 2, "product_change_sets": 3}
CRAWLED = ["minishop_listings", "product_details", "product_options", "product_change_sets"]


@pytest.fixture
def ready(stock: Stock) -> None:
    """A registered seller with products."""
    stock(SELLER, PRODUCTS)


def run(
    instance: dg.DagsterInstance, mode: Mode | None = None, *steps: str, seller: str = SELLER, **options: Any
) -> dg.ExecuteInProcessResult:
    """One run of a backfill, with the mode that was said for some of its steps."""
    config = {} if mode is None else {"ops": {step: {"config": {"mode": mode.name}} for step in steps}}
    return run_job(instance, "crawl_seller", seller, run_config=config, **options)


def written(result: dg.ExecuteInProcessResult) -> dict[str, dict[str, Any]]:
    return {
        key: {name: value.value for name, value in one.metadata.items()} for key, one in materialized(result).items()
    }


def reason(result: dg.ExecuteInProcessResult) -> str:
    assert not [event for event in result.all_events if event.is_step_up_for_retry]
    return failure(result)[1]


def read_differently(database: Database) -> None:
    """A rule of reading that has changed, told by stored bodies that say something else than they did."""
    with database.transaction() as connection:
        statement = 'UPDATE product_raw_data SET body = replace(body, \'"brandNameKr"\', \'"brandNameKr":"새","w"\')'
        assert connection.execute(text(statement)).rowcount


@pytest.mark.usefixtures("ready")
@pytest.mark.parametrize("said_for", ["minishop_listings", "products", "product_change_sets"])
def test_a_replay_that_was_said_for_one_asset_sends_no_request_for_any(
    database: Database, instance: dg.DagsterInstance, market: MarketplaceControl, said_for: str
) -> None:
    assert run(instance).success
    before = latest(database, SELLER)
    read_differently(database)
    market.reset_audit()

    result = run(instance, Mode.REPLAY, said_for)

    assert result.success
    assert market.requested_urls() == {}
    shown = written(result)
    assert list(shown) == CRAWLED
    assert {(one["replayed"], one.get("requests", 0)) for one in shown.values()} == {(True, 0)}
    assert shown["product_change_sets"]["changed_product_info"] == PRODUCTS
    after = latest(database, SELLER)
    assert (after.execution.id, after.requests) == (before.execution.id, before.requests)


@pytest.mark.usefixtures("ready")
def test_a_refetch_asks_for_every_product_and_says_so_with_its_execution(
    database: Database, instance: dg.DagsterInstance, market: MarketplaceControl
) -> None:
    assert run(instance).success
    market.reset_audit()

    result = run(instance, Mode.REFETCH, "minishop_listings", "products")

    assert result.success
    assert {one["replayed"] for one in written(result).values()} == {False}
    stored = latest(database, SELLER)
    assert (stored.full_refetch, stored.execution.total_tasks) == (True, 1 + 2 * PRODUCTS)
    assert sum(market.requested_urls().values()) >= 2 + 2 * PRODUCTS


@pytest.mark.usefixtures("ready")
def test_a_seller_that_is_being_crawled_joins_that_crawl(database: Database, instance: dg.DagsterInstance) -> None:
    opened = open_or_join(database, SellerId(SELLER), triggered_by="schedule", now=utc_now()).stored

    assert run(instance, Mode.REFETCH, "minishop_listings", "products").success

    stored = latest(database, SELLER)
    assert (stored.execution.id, stored.execution.status) == (opened.execution.id, ExecutionStatus.COMPLETED)
    assert stored.full_refetch is False


@pytest.mark.usefixtures("ready")
def test_a_slice_that_ends_before_its_crawl_is_continued_by_the_sensor(
    database: Database, instance: dg.DagsterInstance, set_environment: SetEnvironment, tick: Tick
) -> None:
    set_environment(crawl_slice_seconds=0.001)
    assert run(instance, Mode.REFETCH, "minishop_listings", "products", tags={"dagster/backfill": "abc"}).success
    stored = latest(database, SELLER)
    assert stored.execution.is_open

    [request] = tick(due_crawls).run_requests

    assert request.tags["mustit/execution"] == str(stored.execution.id)


@pytest.mark.usefixtures("ready")
def test_an_inactive_seller_is_refused_to_refetch_but_what_it_left_can_be_replayed(
    database: Database, instance: dg.DagsterInstance, market: MarketplaceControl
) -> None:
    assert run(instance).success
    deactivate_seller(database, SellerId(SELLER), utc_now())
    market.reset_audit()

    assert "INACTIVE" in reason(run(instance, Mode.REFETCH, "minishop_listings", "products"))
    assert run(instance, Mode.REPLAY, "product_change_sets").success
    assert market.requested_urls() == {}


@pytest.mark.usefixtures("ready")
def test_a_paused_crawl_is_refused_with_the_way_to_resume_it(database: Database, instance: dg.DagsterInstance) -> None:
    opened = open_or_join(database, SellerId(SELLER), triggered_by="test", now=utc_now()).stored
    with database.transaction() as connection:
        connection.execute(text("UPDATE crawling_schedule_executions SET status = 'RUNNING'"))
    steering.pause(database, opened.execution.id)

    assert f"mustit execution resume {opened.execution.id}" in reason(run(instance, Mode.REFETCH, "minishop_listings"))


@pytest.mark.usefixtures("ready")
def test_a_seller_without_a_crawl_has_nothing_to_replay(
    instance: dg.DagsterInstance, market: MarketplaceControl
) -> None:
    assert "never been crawled" in reason(run(instance, Mode.REPLAY, "products"))
    assert market.requested_urls() == {}


@pytest.mark.usefixtures("ready")
def test_bodies_that_drift_blocks_stay_out_of_a_replay(
    database: Database, instance: dg.DagsterInstance, set_environment: SetEnvironment, marketplace: RunningSimulator
) -> None:
    assert run(instance).success
    read_differently(database)
    blocked = "detail.ProductInfoModule.w"
    set_environment(base_url=marketplace.url, drift_block=blocked)

    result = run(instance, Mode.REPLAY, "product_change_sets")

    assert f"{PRODUCTS} stored bodies" in reason(result)
    assert written(result)["product_change_sets"]["versions"] == 0
    with database.reading() as connection:
        told = connection.execute(text("SELECT DISTINCT error_text FROM product_raw_data WHERE status = 'FAILED'"))
        [why] = told.scalars()
    assert why.startswith(f"{blocked} is new")
    # Nor does a crawl take them, which tries once more what had failed.
    assert written(run(instance))["product_change_sets"]["failed_bodies"] == PRODUCTS


@pytest.mark.usefixtures("ready")
def test_bodies_that_cannot_be_read_turn_a_replay_red_after_the_others_are_written(
    database: Database, instance: dg.DagsterInstance
) -> None:
    assert run(instance).success
    read_differently(database)
    with database.transaction() as connection:
        connection.execute(text("UPDATE product_raw_data SET body = 'null' WHERE source = 'PRODUCT_OPTION'"))

    result = run(instance, Mode.REPLAY, "product_change_sets")

    assert f"{PRODUCTS} stored bodies" in reason(result)
    assert written(result)["product_change_sets"]["failed_bodies"] == PRODUCTS
    assert written(result)["product_change_sets"]["changed_product_info"] == PRODUCTS


@pytest.mark.usefixtures("ready")
@pytest.mark.parametrize("chosen", [CRAWLED, ["product_details", "product_options"], ["product_change_sets"]], ids=len)
def test_a_run_of_chosen_assets_judges_its_seller_and_not_everybody(
    instance: dg.DagsterInstance, chosen: list[str]
) -> None:
    """The UI and a backfill launch such runs, with every check of the assets; a thousand would judge all as often."""
    assert run(instance).success
    launched = defs.resolve_implicit_global_asset_job_def()

    result = launched.execute_in_process(
        instance=instance, partition_key=SELLER, asset_selection=[dg.AssetKey(key) for key in chosen]
    )

    assert {event.step_key for event in result.all_events if event.is_step_start} <= {*CRAWLED, "products"}
    assert len(result.get_asset_check_evaluations()) == sum(CHECKS_OF.get(key, 0) for key in chosen)


@pytest.mark.usefixtures("ready")
@pytest.mark.parametrize(
    ("chosen", "next_due"), [(["product_options"], [SELLER]), (["minishop_listings"], [])], ids=["no sweep", "sweep"]
)
def test_a_run_of_chosen_assets_delays_the_next_sweep_only_where_it_sweeps_itself(
    database: Database, instance: dg.DagsterInstance, tick: Tick, chosen: list[str], next_due: list[str]
) -> None:
    """A backfill of options alone put off the next sweep of every seller by its interval."""
    assert run(instance).success
    with database.transaction() as connection:
        connection.execute(text("UPDATE crawling_schedules SET next_due_at = now()"))

    launched = defs.resolve_implicit_global_asset_job_def()
    selection = [dg.AssetKey(key) for key in [*chosen, "product_change_sets"]]
    assert launched.execute_in_process(instance=instance, partition_key=SELLER, asset_selection=selection).success
    stored = latest(database, SELLER)
    if stored.execution.is_open:
        # What the sweep has planned was not chosen.
        steering.cancel(database, stored.execution.id, utc_now())

    assert keys(tick(due_crawls).run_requests) == next_due


def add_backfill_run(instance: dg.DagsterInstance, seller: str, status: Status) -> None:
    tags = {"dagster/partition": seller, "dagster/backfill": "abcdefgh"}
    instance.add_run(dg.DagsterRun(job_name="__ASSET_JOB", status=status, tags=tags))


def test_a_backfill_of_a_thousand_sellers_holds_up_no_seller_that_is_due(
    database: Database, instance: dg.DagsterInstance, tick: Tick
) -> None:
    for number in range(1000):
        add_backfill_run(instance, f"waiting {number}", Status.NOT_STARTED)
    register(database, "dmont", "waiting 0")

    requests = tick(due_crawls).run_requests

    assert sorted(map(str, keys(requests))) == ["dmont", "waiting 0"]
    assert {request.tags["dagster/priority"] for request in requests} == {"5"}


def test_a_seller_that_a_backfill_works_on_is_left_to_it_and_takes_no_slot_of_the_sensor(
    database: Database, instance: dg.DagsterInstance, set_environment: SetEnvironment, tick: Tick
) -> None:
    set_environment(crawls_at_once=1)
    for number in range(3):
        add_backfill_run(instance, f"busy {number}", Status.STARTING)
    register(database, "dmont", "busy 0")

    assert keys(tick(due_crawls).run_requests) == ["dmont"]


def test_what_others_wait_for_goes_before_crawls_and_those_before_backfills() -> None:
    repository = defs.get_repository_def()
    priorities = {job.name: int(job.tags.get("dagster/priority", "0")) for job in repository.get_all_jobs()}

    assert priorities["relay_product_outbox"] == priorities["recover_stuck_work"] == 10
    assert priorities["crawl_seller"] == 0


def test_the_run_queue_has_room_for_relay_and_recovery_beside_crawls_backfills_and_housekeeping() -> None:
    defaults = Settings.model_fields
    assert defaults["runs_at_once"].default == defaults["crawls_at_once"].default + 3 + 1 + 2


def test_what_may_take_long_is_housekeeping_and_what_others_wait_for_is_not() -> None:
    jobs = defs.get_repository_def().get_all_jobs()
    assert {job.name for job in jobs if "mustit/housekeeping" in job.tags} == {
        "maintain_storage",
        "check_criteria",
        "measure_days",
        "export_days",
    }
