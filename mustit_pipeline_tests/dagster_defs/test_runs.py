"""The jobs, run for real in this process against simulated servers."""

from collections import Counter

import dagster as dg
import pytest
from sqlalchemy import text

from mustit_pipeline.agents import roster
from mustit_pipeline.crawling import steering
from mustit_pipeline.crawling.sql import executions
from mustit_pipeline.crawling.steering import open_or_join
from mustit_pipeline.defs.crawl.due import due_crawls
from mustit_pipeline.defs.monitoring.alerts import run_failures
from mustit_pipeline.defs.resources import RESOURCES, BusinessDatabase
from mustit_pipeline.defs.run_tags import EXECUTION_TAG
from mustit_pipeline.domain.states import ExecutionStatus
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.foundation.liveness import find_dead
from mustit_pipeline.settings import load_settings
from mustit_pipeline.simulator.control import MarketplaceControl, ProductServerControl
from mustit_pipeline.simulator.process import RunningSimulator
from mustit_pipeline_tests.dagster_defs.conftest import (
    SetEnvironment,
    Stock,
    Tick,
    failure,
    latest,
    materialized,
    run_job,
)
from mustit_pipeline_tests.integration.crawls import differences

SELLER = "한글 & a/b 50%"
PRODUCTS = 6
CRAWLED = ["minishop_listings", "product_details", "product_options", "product_change_sets"]
pytestmark = pytest.mark.usefixtures("ready")


@pytest.fixture
def ready(stock: Stock) -> None:
    """A registered seller with products."""
    stock(SELLER, PRODUCTS)


def test_one_run_materializes_all_four_assets_of_the_seller_with_numbers_to_plot(
    database: Database, instance: dg.DagsterInstance
) -> None:
    result = run_job(instance, "crawl_seller", SELLER)

    assert result.success
    found = materialized(result)
    assert sorted(found) == sorted(CRAWLED)
    assert {one.partition for one in found.values()} == {SELLER}
    execution_id = str(latest(database, SELLER).execution.id)
    assert [one.metadata["execution_id"].value for one in found.values()] == [execution_id] * len(CRAWLED)
    assert found["minishop_listings"].metadata["dagster/partition_row_count"].value == PRODUCTS
    assert found["minishop_listings"].metadata["sweep"].value == "COMPLETE"
    assert found["product_details"].metadata["requests"].value == PRODUCTS
    assert found["product_change_sets"].metadata["created"].value == PRODUCTS
    assert found["product_change_sets"].metadata["execution_status"].value == "COMPLETED"


def test_a_light_crawl_is_a_run_like_any_other_and_fetches_what_the_listing_shows_to_have_changed(
    database: Database,
    instance: dg.DagsterInstance,
    market: MarketplaceControl,
    tick: Tick,
    set_environment: SetEnvironment,
) -> None:
    set_environment(recrawl="adaptive")
    run_job(instance, "crawl_seller", SELLER)
    market.set_fields(SELLER, market.products(SELLER)[0]["itemNo"], name="새 이름")
    with database.transaction() as connection:
        connection.execute(text("UPDATE recrawl_sellers SET swept_at = now() - interval '2 hours'"))

    [request] = tick(due_crawls).run_requests
    result = run_job(instance, "crawl_seller", SELLER, tags=dict(request.tags))

    found, stored = materialized(result), latest(database, SELLER)
    assert (result.success, sorted(found)) == (True, sorted(CRAWLED))
    assert (str(stored.id), stored.kind, stored.status.value) == (request.tags[EXECUTION_TAG], "LIGHT", "COMPLETED")
    assert found["product_details"].metadata["requests"].value == 1
    assert found["product_change_sets"].metadata["updated"].value == 1


def test_a_failed_task_turns_the_run_red_after_the_change_sets_are_written(
    database: Database, instance: dg.DagsterInstance, market: MarketplaceControl
) -> None:
    market.fault("status", "options", itemNo=market.products(SELLER)[0]["itemNo"], status=404)

    result = run_job(instance, "crawl_seller", SELLER)

    assert not result.success
    assert materialized(result)["product_change_sets"].metadata["created"].value == PRODUCTS - 1
    checks = {check.check_name: check for check in result.get_asset_check_evaluations()}
    assert {name for name, check in checks.items() if not check.passed} == {"no_failed_tasks"}
    assert checks["no_failed_tasks"].metadata["failed"].value == 1
    assert latest(database, SELLER).execution.status is ExecutionStatus.COMPLETED


def test_deletions_that_look_wrong_are_held_and_the_check_says_so(
    instance: dg.DagsterInstance, market: MarketplaceControl
) -> None:
    assert all(check.passed for check in run_job(instance, "crawl_seller", SELLER).get_asset_check_evaluations())
    market.remove(SELLER, [product["itemNo"] for product in market.products(SELLER)][: PRODUCTS // 2])

    result = run_job(instance, "crawl_seller", SELLER)

    assert result.success
    [warned] = [check for check in result.get_asset_check_evaluations() if not check.passed]
    assert (warned.check_name, warned.severity) == ("no_held_deletions", dg.AssetCheckSeverity.WARN)
    assert warned.metadata["held"].value == PRODUCTS // 2


def test_a_slice_in_which_no_agent_was_free_leaves_the_plan_to_the_next_one(
    database: Database, instance: dg.DagsterInstance, set_environment: SetEnvironment
) -> None:
    """A product step that planned by itself would complete a new seller's crawl with nothing in it."""
    set_environment(crawl_slice_seconds=1)
    with database.transaction() as connection:
        for agent in roster.list_agents(connection):
            roster.block(connection, agent.agent_id)

    assert run_job(instance, "crawl_seller", SELLER).success

    stored = latest(database, SELLER)
    assert (stored.execution.status, stored.is_planned) == (ExecutionStatus.PENDING, False)

    with database.transaction() as connection:
        for agent in roster.list_agents(connection):
            roster.unblock(connection, load_settings(), agent.agent_id)
        connection.execute(text("UPDATE pool_state SET breaker_open_until = NULL"))
    set_environment(crawl_slice_seconds=60)

    assert run_job(instance, "crawl_seller", SELLER).success
    ended = latest(database, SELLER)
    assert (ended.execution.id, ended.execution.status) == (stored.execution.id, ExecutionStatus.COMPLETED)
    assert ended.execution.total_tasks == 1 + 2 * PRODUCTS


def test_options_selected_alone_are_refetched_alone_for_known_products(
    database: Database, instance: dg.DagsterInstance, market: MarketplaceControl
) -> None:
    assert run_job(instance, "crawl_seller", SELLER).success
    market.reset_audit()

    result = run_job(instance, "crawl_seller", SELLER, asset_selection=[dg.AssetKey("product_options")])

    assert result.success
    assert list(materialized(result)) == ["product_options"]
    asked = Counter(url.rsplit("/", 1)[-1] for url in market.requested_urls() if url != "/")
    assert asked == {"options": PRODUCTS}
    assert latest(database, SELLER).listed_count is None, "that is how others know that it was no whole crawl"


def test_a_run_works_on_the_execution_it_was_started_for_and_opens_no_other(
    database: Database, instance: dg.DagsterInstance, market: MarketplaceControl
) -> None:
    """A slice that was requested before another run completed the crawl must not begin a new one."""
    assert run_job(instance, "crawl_seller", SELLER).success
    done = latest(database, SELLER).execution.id
    market.reset_audit()

    result = run_job(instance, "crawl_seller", SELLER, tags={"mustit/execution": str(done)})

    assert result.success
    assert latest(database, SELLER).execution.id == done
    assert market.requested_urls() == {}


def test_a_cancelled_crawl_ends_its_run_and_nothing_is_opened_in_its_place(
    database: Database, instance: dg.DagsterInstance
) -> None:
    opened = open_or_join(database, SellerId(SELLER), triggered_by="test", now=utc_now()).stored
    steering.cancel(database, opened.execution.id, utc_now())

    result = run_job(instance, "crawl_seller", SELLER, tags={"mustit/execution": str(opened.execution.id)})

    step, reason = failure(result)
    assert step == "minishop_listings"
    assert "CANCELLED" in reason
    assert latest(database, SELLER).execution.id == opened.execution.id


def test_the_steps_of_a_run_stay_with_the_execution_that_its_first_step_opened(
    database: Database, instance: dg.DagsterInstance
) -> None:
    result = run_job(instance, "crawl_seller", SELLER)

    stored = instance.get_run_by_id(result.run_id)
    assert stored is not None
    assert stored.tags["mustit/execution"] == str(latest(database, SELLER).execution.id)


def test_a_run_is_seen_alive_for_as_long_as_it_works(database: Database, instance: dg.DagsterInstance) -> None:
    seen: list[set[str]] = []

    @dg.op
    def look(context: dg.OpExecutionContext, database: BusinessDatabase) -> None:
        seen.append(find_dead(database.open(), [context.run_id]))

    @dg.job(resource_defs=RESOURCES)
    def looking() -> None:
        look()

    result = looking.execute_in_process(instance=instance)

    assert seen == [set()]
    assert find_dead(database, [result.run_id]) == {result.run_id}


def test_what_repeating_cannot_heal_is_a_failure_that_no_retry_repeats(
    database: Database, instance: dg.DagsterInstance, market: MarketplaceControl
) -> None:
    market.fault("status", "listing", status=400)

    result = run_job(instance, "crawl_seller", SELLER)

    [event] = [event for event in result.all_events if event.is_step_failure]
    user_failure = event.step_failure_data.user_failure_data
    assert user_failure is not None
    assert user_failure.metadata["code"].value == "EXTERNAL_UNEXPECTED_STATUS"
    assert latest(database, SELLER).execution.status is ExecutionStatus.FAILED
    assert not [event for event in result.all_events if event.is_step_up_for_retry]


def test_the_relay_records_what_each_seller_got_and_repeating_it_sends_nothing(
    instance: dg.DagsterInstance,
    set_environment: SetEnvironment,
    product_server: RunningSimulator,
    market: MarketplaceControl,
    receiver: ProductServerControl,
) -> None:
    set_environment(product_server_url=product_server.url)
    assert run_job(instance, "crawl_seller", SELLER).success

    sent, again = run_job(instance, "relay_product_outbox"), run_job(instance, "relay_product_outbox")

    logged = materialized(sent)["product_server"]
    assert (logged.partition, logged.metadata["events_sent"].value) == (SELLER, PRODUCTS)
    assert again.output_for_node("relay_waiting_events")["sent"] == 0
    assert not again.get_asset_materialization_events()
    assert differences(market, receiver, SELLER) == {}


def test_an_event_that_is_refused_for_good_turns_the_relay_red_after_the_rest_was_sent(
    instance: dg.DagsterInstance,
    set_environment: SetEnvironment,
    product_server: RunningSimulator,
    receiver: ProductServerControl,
) -> None:
    set_environment(product_server_url=product_server.url)
    assert run_job(instance, "crawl_seller", SELLER).success
    receiver.fault("status", count=1, status=400)

    result = run_job(instance, "relay_product_outbox")

    step, reason = failure(result)
    assert step == "refuse_failed_events"
    assert "1 events became FAILED" in reason
    assert result.output_for_node("relay_waiting_events")["sent"] == PRODUCTS - 1


def test_a_relay_without_an_address_says_which_setting_is_missing(instance: dg.DagsterInstance) -> None:
    _, reason = failure(run_job(instance, "relay_product_outbox"))

    assert "MUSTIT_PRODUCT_SERVER_URL" in reason


@pytest.mark.parametrize("status", ["PAUSED", "CANCELLED"])
def test_a_crawl_that_an_operator_halts_under_its_run_is_no_alert(
    database: Database, instance: dg.DagsterInstance, tick: Tick, status: str
) -> None:
    """An operator who paused it used to be told that it failed."""
    with database.transaction() as connection:
        connection.execute(
            text(f"""
                CREATE FUNCTION halt() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                    IF NEW.sweep_status = 'COMPLETE' THEN
                        NEW.status := '{status}';
                        NEW.ended_at := CASE NEW.status WHEN 'CANCELLED' THEN now() END;
                    END IF;
                    RETURN NEW;
                END $$;
                CREATE TRIGGER halt BEFORE UPDATE ON crawling_schedule_executions
                FOR EACH ROW EXECUTE FUNCTION halt()
            """)
        )

    halted = run_job(instance, "crawl_seller", SELLER)

    step, reason = failure(halted)
    assert step == "products"
    assert f"is {status}" in reason
    assert tick(run_failures).skip_message.startswith("0 alerts opened")

    tags = {**halted.dagster_run.tags, "dagster/partition": SELLER}
    instance.add_run(dg.DagsterRun(job_name="crawl_seller", status=dg.DagsterRunStatus.FAILURE, tags=tags))
    assert tick(run_failures).skip_message.startswith("1 alerts opened"), (
        "that another run was halted says nothing of this one"
    )


@pytest.mark.parametrize("limit", [0, -1])
def test_a_crawl_of_fewer_products_than_one_is_refused_before_it_is_opened(
    database: Database, instance: dg.DagsterInstance, limit: int
) -> None:
    config = {"ops": {"minishop_listings": {"config": {"product_limit": limit}}}}
    result = run_job(instance, "crawl_seller", SELLER, run_config=config)

    assert not result.success
    said = [str(event.step_failure_data.error) for event in result.all_events if event.is_step_failure]
    assert "product_limit" in said[0]
    assert "greater than or equal to 1" in said[0]
    with database.reading() as connection:
        assert executions.find_latest(connection, SellerId(SELLER)) is None
