"""The sensor run_failures and the checks, on a real instance, a real database and a real receiver."""

from collections.abc import Callable, Generator
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest
from sqlalchemy import text

from mustit_pipeline.crawling.steering import deactivate_seller
from mustit_pipeline.definitions import defs
from mustit_pipeline.defs.monitoring.alerts import ended_runs, run_failures
from mustit_pipeline.defs.resources import RESOURCES
from mustit_pipeline.domain.states import SliceOutcome
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.simulator.control import MarketplaceControl
from mustit_pipeline_tests.dagster_defs.conftest import SetEnvironment, Stock, ended_slices, run_job
from mustit_pipeline_tests.integration.crawls import register
from mustit_pipeline_tests.integration.monitoring.inbox import Inbox, opened_inbox

SELLER = "한글 & a/b 50%"
SECRET = "hunter2"
OF_SELLER = {
    "scheduler_outbox": "schedule_id IN (SELECT schedule_id FROM crawling_schedules WHERE seller_id = :seller)",
    "crawling_schedules": "seller_id = :seller",
    "sellers": "seller_id = :seller",
}
Look = Callable[[], str]
Ended = dg.DagsterRunStatus


@pytest.fixture
def inbox() -> Generator[Inbox]:
    with opened_inbox() as opened:
        yield opened


@pytest.fixture
def look(instance: dg.DagsterInstance, set_environment: SetEnvironment, inbox: Inbox) -> Look:
    """Evaluate the sensor as one daemon after another does: each has only what the last one's cursor says."""
    set_environment(alert_urls=inbox.url, alert_calm_seconds=0)
    cursors: list[str | None] = [None]

    def evaluate() -> str:
        with dg.build_sensor_context(instance=instance, cursor=cursors[-1], resources=RESOURCES) as context:
            skipped = run_failures(context)
            cursors.append(context.cursor)
        assert isinstance(skipped, dg.SkipReason)
        return str(skipped.skip_message)

    return evaluate


def run(instance: dg.DagsterInstance, *, fails: bool, seller: str | None = SELLER) -> str:
    """A run that ends with words of ours, or with an error of unknown content."""

    @dg.op
    def work() -> None:
        if fails and seller is None:
            raise RuntimeError(f"cannot reach http://user:{SECRET}@host")
        if fails:
            raise dg.Failure("The marketplace is closed", allow_retries=False)

    @dg.job(name="crawl_seller" if seller else "maintain_storage")
    def job() -> None:
        work()

    tags = {} if seller is None else {"dagster/partition": seller}
    return job.execute_in_process(instance=instance, raise_on_error=False, tags=tags).run_id


def stored(database: Database) -> list[Any]:
    with database.reading() as connection:
        return list(connection.execute(text("SELECT * FROM alerts ORDER BY opened_at, subject")))


def test_a_failed_run_is_told_once_and_the_next_good_one_ends_it(
    database: Database, instance: dg.DagsterInstance, look: Look, inbox: Inbox
) -> None:
    register(database, SELLER)
    run_id = run(instance, fails=True)
    assert look() == "1 alerts opened, 0 ended; 1 notifications sent, 0 still to be sent"
    assert look() == "0 alerts opened, 0 ended; 0 notifications sent, 0 still to be sent"
    [message] = inbox.messages
    assert message["title"] == f"[mustit] crawl_seller of {SELLER} failed"
    assert message["message"].startswith(f"work: The marketplace is closed. Run {run_id}.")

    run(instance, fails=True)
    run(instance, fails=False, seller="another")
    assert look().startswith("0 alerts opened, 0 ended")

    run(instance, fails=False)
    assert look() == "0 alerts opened, 1 ended; 1 notifications sent, 0 still to be sent"
    assert look().startswith("0 alerts opened, 0 ended; 0 notifications sent")
    assert inbox.titles[1:] == [f"[mustit] Over: crawl_seller of {SELLER} failed"]
    assert [row.ended_at is None for row in stored(database)] == [False]


def test_a_daemon_that_forgot_how_far_it_came_tells_nothing_twice(
    database: Database, instance: dg.DagsterInstance, look: Look, inbox: Inbox
) -> None:
    register(database, SELLER, "another")
    run(instance, fails=True)
    run(instance, fails=False)
    run(instance, fails=True, seller="another")
    look()
    told = len(inbox.messages)

    with dg.build_sensor_context(instance=instance, resources=RESOURCES) as context:
        forgetful = run_failures(context)

    assert isinstance(forgetful, dg.SkipReason)
    assert str(forgetful.skip_message).startswith("0 alerts opened, 0 ended; 0 notifications sent")
    assert (len(inbox.messages), len(stored(database))) == (told, 2)


def test_an_error_whose_text_is_not_ours_stays_in_the_run(
    database: Database, instance: dg.DagsterInstance, look: Look, inbox: Inbox
) -> None:
    run(instance, fails=True, seller=None)
    look()

    assert SECRET not in f"{inbox.messages}{stored(database)}"
    assert inbox.messages[0]["message"].startswith("work: RuntimeError. Run ")


def test_a_look_begins_where_the_last_one_ended_and_a_little_before(
    database: Database, instance: dg.DagsterInstance
) -> None:
    now = datetime.now(UTC)
    run(instance, fails=True)
    first = ended_runs(instance, database, None, now)
    again = ended_runs(instance, database, first.until.isoformat(), now)
    later = ended_runs(instance, database, (now + timedelta(hours=1)).isoformat(), now)

    assert [one.failure is not None for one in first.outcomes] == [True]
    assert len(again.outcomes) == 1
    assert (later.outcomes, later.until) == ([], now + timedelta(hours=1))


@pytest.mark.parametrize(
    ("job", "partition", "assets", "subject"),
    [
        ("crawl_seller", SELLER, None, f"run of seller {SELLER}"),
        ("__ASSET_JOB", SELLER, ["product_options"], f"run of seller {SELLER}"),
        ("measure_days", "2026-11-15", None, "run of day 2026-11-15"),
        ("__ASSET_JOB", "2026-11-15", ["daily_crawl_metrics"], "run of day 2026-11-15"),
        ("export_days", "2026-11-15", None, "export of day 2026-11-15"),
        ("__ASSET_JOB", "2026-11-15", ["product_catalog"], "export of day 2026-11-15"),
        ("__ASSET_JOB", "2026-11-15", ["product_options"], "run of seller 2026-11-15"),
        ("__ASSET_JOB", None, None, "run check_criteria"),
        ("check_criteria", None, None, "run check_criteria"),
        ("relay_product_outbox", None, None, "run relay_product_outbox"),
    ],
)
def test_runs_of_a_seller_or_a_day_are_one_subject_whatever_started_them(
    database: Database,
    instance: dg.DagsterInstance,
    job: str,
    partition: str | None,
    assets: list[str] | None,
    subject: str,
) -> None:
    tags = {} if partition is None else {"dagster/partition": partition}
    selection = None if assets is None else frozenset(dg.AssetKey(key) for key in assets)
    instance.add_run(dg.DagsterRun(job_name=job, status=Ended.FAILURE, tags=tags, asset_selection=selection))

    [outcome] = ended_runs(instance, database, None, datetime.now(UTC)).outcomes

    assert outcome.subject == subject


@pytest.fixture
def crawlable(look: Look, stock: Stock) -> MarketplaceControl:
    """A registered seller with products."""
    return stock(SELLER, 2)


def chosen(instance: dg.DagsterInstance) -> bool:
    """Launch a seller's assets as the UI and backfills do."""
    assets = ["minishop_listings", "product_details", "product_options", "product_change_sets"]
    launched = defs.resolve_implicit_global_asset_job_def().execute_in_process(
        instance=instance,
        partition_key=SELLER,
        asset_selection=[dg.AssetKey(key) for key in assets],
        raise_on_error=False,
    )
    return launched.success


def test_a_failed_backfill_of_a_seller_is_over_with_its_next_good_crawl(
    database: Database, instance: dg.DagsterInstance, look: Look, inbox: Inbox, crawlable: MarketplaceControl
) -> None:
    """The same backfill is not launched again, so that its alert used to stay for ever."""
    fault = crawlable.fault("status", "listing", status=400)
    assert not chosen(instance)
    assert look().startswith("1 alerts opened, 0 ended")
    crawlable.clear_faults(fault)

    crawled = run_job(instance, "crawl_seller", SELLER)

    assert crawled.success
    assert look().startswith("0 alerts opened, 1 ended")
    assert inbox.titles == [
        f"[mustit] a run of chosen assets of {SELLER} failed",
        f"[mustit] Over: a run of chosen assets of {SELLER} failed",
    ]


def test_a_failed_check_that_a_person_ran_is_over_with_the_next_good_hour(
    database: Database, instance: dg.DagsterInstance, look: Look, inbox: Inbox
) -> None:
    launched = defs.resolve_implicit_global_asset_job_def()
    drift = dg.AssetCheckKey(dg.AssetKey("mustit_marketplace"), "schema_drift")
    with database.transaction() as connection:
        connection.execute(text("ALTER TABLE schema_drift RENAME TO gone"))
    failed = launched.get_subset(asset_check_selection={drift}).execute_in_process(
        instance=instance, raise_on_error=False
    )
    assert not failed.success
    with database.transaction() as connection:
        connection.execute(text("ALTER TABLE gone RENAME TO schema_drift"))
    assert look().startswith("1 alerts opened, 0 ended")

    check(instance)

    assert look().startswith("0 alerts opened, 1 ended")


@pytest.mark.parametrize("gone", ["inactive", "unregistered"])
def test_alerts_of_a_seller_who_is_not_crawled_any_more_end(
    database: Database, instance: dg.DagsterInstance, look: Look, inbox: Inbox, gone: str
) -> None:
    register(database, SELLER, "other")
    run(instance, fails=True)
    run(instance, fails=True, seller="other")
    assert look().startswith("2 alerts opened, 0 ended")

    if gone == "inactive":
        deactivate_seller(database, SellerId(SELLER), utc_now())
    else:
        with database.transaction() as connection:
            for table in ("scheduler_outbox", "crawling_schedules", "sellers"):
                connection.execute(text(f"DELETE FROM {table} WHERE {OF_SELLER[table]}"), {"seller": SELLER})

    assert look().startswith("0 alerts opened, 1 ended")
    assert look().startswith("0 alerts opened, 0 ended")
    assert [row.subject for row in stored(database) if row.ended_at is None] == ["run of seller other"]


def check(instance: dg.DagsterInstance) -> dict[str, dg.AssetCheckEvaluation]:
    result = run_job(instance, "check_criteria", raise_on_error=True)
    return {one.check_name: one for one in result.get_asset_check_evaluations()}


def test_the_hourly_checks_run_without_a_partition_and_failing_ones_become_alerts(
    database: Database, instance: dg.DagsterInstance, look: Look, inbox: Inbox, stock: Stock
) -> None:
    stock(SELLER, 4, truth_sample=50)
    crawled = run_job(instance, "crawl_seller", SELLER)
    assert crawled.success

    first = check(instance)
    assert [name for name, one in first.items() if not one.passed] == []
    assert len(first) == 15
    assert first["sampled_truth"].metadata["compared_now"].value == 4
    assert {one.partition for one in first.values()} == {None}

    with database.transaction() as connection:
        connection.execute(text("UPDATE crawling_schedule_executions SET ended_at = ended_at - interval '3 days'"))
        connection.execute(text("UPDATE product_outbox SET created_at = created_at - interval '3 hours'"))
    second = check(instance)
    assert {name: one.severity for name, one in second.items() if not one.passed} == {
        "sellers_on_time": dg.AssetCheckSeverity.ERROR,
        "outbox_age": dg.AssetCheckSeverity.WARN,
    }
    assert SELLER in str(second["sellers_on_time"].metadata["sellers"].value)

    look()
    assert inbox.titles == ["[mustit] The check sellers_on_time fails"]
    assert SELLER in inbox.messages[0]["message"]
    with database.transaction() as connection:
        connection.execute(text("UPDATE crawling_schedule_executions SET ended_at = now()"))
    check(instance)
    look()
    assert inbox.titles[1:] == ["[mustit] Over: The check sellers_on_time fails"]


def test_unbelievable_changes_turn_the_run_red_and_are_told(
    database: Database, instance: dg.DagsterInstance, look: Look, inbox: Inbox, stock: Stock
) -> None:
    market = stock(SELLER, 4, suspicious_least=2)
    assert run_job(instance, "crawl_seller", SELLER).success
    for product in market.products(SELLER):
        market.set_fields(SELLER, product["itemNo"], sellingPrice=product["sellingPrice"] * 10)

    result = run_job(instance, "crawl_seller", SELLER)

    assert not result.success
    [failed] = [one for one in result.get_asset_check_evaluations() if not one.passed]
    assert (failed.check_name, failed.blocking, failed.metadata["held"].value) == ("believable_changes", True, 4)
    assert [one.outcome for one in ended_slices(database, SELLER)] == [SliceOutcome.WORKED_THROUGH]
    with database.reading() as connection:
        assert connection.execute(text("SELECT max(version) FROM products")).scalar_one() == 1
    look()
    assert {row.kind for row in stored(database)} == {"RUN_FAILED", "HELD_CHANGES"}
    assert "`mustit holds release" in inbox.messages[0]["message"]
