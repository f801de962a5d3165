"""Permanent failures are not repeated, transient ones are: Dagster's three ways of repeating, for real."""

import time
from collections.abc import Callable, Generator

import dagster as dg
import pytest
from sqlalchemy import make_url, text
from sqlalchemy.exc import DBAPIError, ProgrammingError

from mustit_pipeline.cli.runtime import dagster_environment
from mustit_pipeline.crawling.sql import slices
from mustit_pipeline.crawling.sql.slices import EndedSlice
from mustit_pipeline.crawling.steering import find
from mustit_pipeline.defs.crawl.due import due_crawls
from mustit_pipeline.defs.failures import (
    RETRY_TRANSIENT,
    PermanentFailure,
    TransientFailure,
    failure_of,
    readable_failures,
    step_failure,
)
from mustit_pipeline.defs.resources import RESOURCES, BusinessDatabase
from mustit_pipeline.defs.run_tags import EXECUTION_TAG
from mustit_pipeline.domain.errors import Conflict, DomainError, InvariantViolated, NotFound
from mustit_pipeline.domain.states import ExecutionStatus, SliceOutcome
from mustit_pipeline.domain.values import ExecutionId
from mustit_pipeline.embedded import EmbeddedError
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database, DatabaseRefused, DatabaseUnreachable
from mustit_pipeline.foundation.failures import MalformedBody, NotFoundAnswer
from mustit_pipeline.foundation.schema import SchemaMismatch
from mustit_pipeline.settings import SettingsError, load_settings
from mustit_pipeline.simulator.control import MarketplaceControl, ProductServerControl
from mustit_pipeline.simulator.process import RunningSimulator
from mustit_pipeline_tests.conftest import JWT_SECRET, MakeSettings
from mustit_pipeline_tests.dagster_defs.conftest import SetEnvironment, Tick, failure, keys, run_job
from mustit_pipeline_tests.integration.crawls import crawl, register

BROKEN_RULE = InvariantViolated("INVARIANT_TEST", korean="규칙 위반", english="a rule is broken")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (BROKEN_RULE, PermanentFailure),
        (Conflict("CONFLICT_TEST", korean="충돌", english="conflict"), PermanentFailure),
        (NotFound("NOT_FOUND_TEST", korean="없음", english="nothing there"), PermanentFailure),
        (NotFoundAnswer("/x", 404), PermanentFailure),
        (MalformedBody("detail", "no JSON"), PermanentFailure),
        (SettingsError("MUSTIT_X: wrong"), PermanentFailure),
        (SchemaMismatch("the database has no schema yet"), PermanentFailure),
        (DatabaseUnreachable("no server listens"), TransientFailure),
        (DatabaseRefused("a wrong password"), PermanentFailure),
        (EmbeddedError("no server started"), TransientFailure),
    ],
)
def test_every_error_that_people_can_act_on_is_permanent_or_transient(error: Exception, kind: type[dg.Failure]) -> None:
    """Tries of calls to the outside are counted where they are made: what comes up here has had all of them."""
    failure = failure_of(error)

    assert type(failure) is kind
    assert failure.allow_retries is (kind is TransientFailure)
    assert str(failure.description) in str(error)


def test_a_defect_of_ours_is_not_repeated_and_its_run_keeps_what_it_was(instance: dg.DagsterInstance) -> None:
    """Without a description: the text of an unknown error goes into no alert."""

    @dg.op(retry_policy=RETRY_TRANSIENT)
    def stumble() -> None:
        with readable_failures(), readable_failures():
            raise KeyError("brand") from ValueError("a body without one")

    @dg.job
    def stumbling() -> None:
        stumble()

    result = stumbling.execute_in_process(instance=instance, raise_on_error=False)

    assert not [event for event in result.all_events if event.is_step_up_for_retry]
    [event] = [event for event in result.all_events if event.is_step_failure]
    data = event.step_failure_data
    assert data.user_failure_data is not None
    assert data.user_failure_data.description is None
    assert data.user_failure_data.metadata["error"].value == "KeyError: 'brand'"
    assert data.error is not None
    assert data.error.cause is not None
    assert data.error.cause.cls_name == "KeyError"
    assert "stumble" in str(data.error.cause.stack)
    assert "a body without one" in str(data.error.cause.cause)


def test_a_connection_that_waited_too_long_in_a_transaction_may_heal(database: Database) -> None:
    """PostgreSQL ends it with an error that is not one of operation."""

    def dawdle() -> None:
        with database.transaction() as connection:
            connection.execute(text("SET idle_in_transaction_session_timeout = '1ms'"))
            for _ in range(100):
                time.sleep(0.1)
                connection.execute(text("SELECT 1"))

    with pytest.raises(DBAPIError) as ended:
        dawdle()

    assert type(failure_of(ended.value)) is TransientFailure


def test_a_table_that_the_user_may_not_touch_is_no_outage(database: Database) -> None:
    with database.transaction() as connection:
        connection.execute(text("CREATE ROLE reader"))
    try:
        with pytest.raises(ProgrammingError) as refused, database.transaction() as connection:
            connection.execute(text("SET LOCAL ROLE reader; DELETE FROM sellers"))
    finally:
        with database.transaction() as connection:
            connection.execute(text("DROP ROLE reader"))

    failure = failure_of(refused.value)

    assert type(failure) is PermanentFailure
    assert "permission denied for table sellers" in str(failure.description)


@pytest.fixture
def waiting_event(
    database: Database,
    make_settings: MakeSettings,
    set_environment: SetEnvironment,
    marketplace: RunningSimulator,
    market: MarketplaceControl,
    product_server: RunningSimulator,
) -> None:
    """A product event that a relay could send."""
    market.add_seller("dmont", 1)
    register(database, "dmont")
    crawl(database, make_settings(base_url=marketplace.url), "dmont")
    set_environment(base_url=marketplace.url, product_server_url=product_server.url)


@pytest.mark.usefixtures("waiting_event")
def test_a_step_whose_database_connection_dies_is_repeated_and_then_succeeds(
    database: Database, instance: dg.DagsterInstance, receiver: ProductServerControl
) -> None:
    with database.transaction() as connection:
        connection.execute(text("CREATE SEQUENCE deaths"))
        connection.execute(
            text("""
                CREATE FUNCTION die_once() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                    IF nextval('deaths') = 1 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;
                    RETURN NEW;
                END $$
            """)
        )
        connection.execute(
            text("CREATE TRIGGER die BEFORE UPDATE ON product_outbox FOR EACH ROW EXECUTE FUNCTION die_once()")
        )

    result = run_job(instance, "relay_product_outbox")

    assert result.success
    [again] = [event for event in result.all_events if event.is_step_up_for_retry]
    assert again.step_key == "relay_waiting_events"
    assert len(receiver.products("dmont")) == 1


def test_a_relay_that_failed_for_good_is_not_repeated(
    instance: dg.DagsterInstance, set_environment: SetEnvironment
) -> None:
    result = run_job(instance, "relay_product_outbox")

    assert failure(result)[0] == "relay_waiting_events"
    assert not [event for event in result.all_events if event.is_step_up_for_retry]


@pytest.fixture
def configured(
    make_settings: MakeSettings, empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> Generator[dg.DagsterInstance]:
    """An instance as dagster.yaml makes it, with a database of its own."""
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    for variable, value in dagster_environment(make_settings(dagster_database_url=empty_database_url)).items():
        monkeypatch.setenv(variable, value)
    with dg.DagsterInstance.get() as made:
        yield made


class Doomed(dg.Config):
    """How a step ends."""

    transient: bool


@dg.op
def fail(config: Doomed) -> None:
    with readable_failures():
        raise DatabaseUnreachable("no server listens") if config.transient else BROKEN_RULE


@dg.job(tags={"dagster/max_retries": "3"})
def failing() -> None:
    fail()


@dg.job
def failing_with_a_policy() -> None:
    fail.with_retry_policy(RETRY_TRANSIENT)()


def test_a_step_that_failed_for_good_is_not_repeated_whatever_its_policy(instance: dg.DagsterInstance) -> None:
    result = failing_with_a_policy.execute_in_process(
        instance=instance, raise_on_error=False, run_config={"ops": {"fail": {"config": {"transient": False}}}}
    )

    assert failure(result)[0] == "fail"
    assert not [event for event in result.all_events if event.is_step_up_for_retry]


def test_no_run_is_repeated_because_a_step_failed_even_where_its_tags_ask_for_it(
    configured: dg.DagsterInstance,
) -> None:
    for transient in (False, True):
        result = failing.execute_in_process(
            instance=configured,
            raise_on_error=False,
            run_config={"ops": {"fail": {"config": {"transient": transient}}}},
        )
        run = configured.get_run_by_id(result.run_id)
        assert run is not None
        assert run.tags["dagster/will_retry"] == "false"


def test_a_run_whose_process_died_is_repeated_where_its_tags_ask_for_it(configured: dg.DagsterInstance) -> None:
    tags = {"dagster/max_retries": "1"}
    run = configured.add_run(dg.DagsterRun(job_name="failing", status=dg.DagsterRunStatus.STARTED, tags=tags))

    configured.report_run_failed(run, "The run's process is gone")

    ended = configured.get_run_by_id(run.run_id)
    assert ended is not None
    assert ended.tags["dagster/will_retry"] == "true"


def test_monitoring_resumes_nothing(configured: dg.DagsterInstance) -> None:
    """A run that was resumed in the middle would have a second worker beside the sensor's next slice."""
    assert configured.run_monitoring_enabled
    assert configured.run_monitoring_max_resume_run_attempts == 0
    assert configured.run_retries_max_retries == 0


@pytest.fixture
def sliced(database: Database, instance: dg.DagsterInstance, tick: Tick) -> dg.DagsterRun:
    """The run of a due seller's first slice; its crawl was opened a while ago."""
    register(database, "dmont")
    [request] = tick(due_crawls).run_requests
    with database.transaction() as connection:
        connection.execute(text("UPDATE crawling_schedule_executions SET updated_at = now() - interval '1 hour'"))
    tags = {"dagster/partition": "dmont", EXECUTION_TAG: request.tags[EXECUTION_TAG]}
    return instance.add_run(dg.DagsterRun(job_name="crawl_seller", status=dg.DagsterRunStatus.STARTED, tags=tags))


def test_the_sensor_asks_for_no_further_slice_after_one_that_failed_for_good(
    database: Database, instance: dg.DagsterInstance, tick: Tick, sliced: dg.DagsterRun
) -> None:
    instance.report_run_failed(sliced)
    execution_id = ExecutionId(sliced.tags[EXECUTION_TAG]).value
    ended = EndedSlice(sliced.run_id, execution_id, SliceOutcome.FAILED_FOR_GOOD, utc_now(), BROKEN_RULE.code)
    with database.transaction() as connection:
        slices.record(connection, [ended])
    register(database, "other")

    outcome = tick(due_crawls)

    assert keys(outcome.run_requests) == ["other"]
    given_up = find(database, ExecutionId(sliced.tags[EXECUTION_TAG])).execution
    assert given_up.status is ExecutionStatus.FAILED
    assert BROKEN_RULE.code in (given_up.error_text or "")
    assert sliced.run_id in (given_up.error_text or "")


def test_the_sensor_asks_for_another_slice_after_one_that_failed_for_a_while(
    database: Database, instance: dg.DagsterInstance, tick: Tick, sliced: dg.DagsterRun
) -> None:
    instance.report_run_failed(sliced)

    [request] = tick(due_crawls).run_requests

    assert request.tags[EXECUTION_TAG] == sliced.tags[EXECUTION_TAG]


@pytest.mark.parametrize(
    ("error", "for_good"),
    [
        (BROKEN_RULE, "INVARIANT_TEST"),
        (Conflict("CONFLICT_TEST", korean="충돌", english="conflict"), None),
        (DatabaseUnreachable("no server listens"), None),
    ],
)
def test_a_failure_says_where_the_next_run_would_end_the_same_way(
    instance: dg.DagsterInstance, error: DomainError | DatabaseUnreachable, for_good: str | None
) -> None:
    @dg.asset
    def doomed() -> None:
        with readable_failures():
            raise error

    result = dg.materialize([doomed], instance=instance, raise_on_error=False)

    found = step_failure(instance, result.run_id)
    assert found is not None
    assert (found.step, found.for_good) == ("doomed", for_good)


Break = Callable[[str], None]
BROKEN = {
    "settings": ("MUSTIT_JWT_SECRET", "SettingsError"),
    "schema": ("mustit db upgrade", "SchemaMismatch"),
    "server": ("PostgreSQL does not answer", None),
    "user": ('role "stranger" does not exist', "DatabaseRefused"),
}


@pytest.fixture
def broken(
    database: Database, database_url: str, set_environment: SetEnvironment, monkeypatch: pytest.MonkeyPatch
) -> Break:
    """Take from the environment of a run what it needs before its first line of work."""

    def take(what: str) -> None:
        if what == "settings":
            monkeypatch.delenv("MUSTIT_JWT_SECRET")
        elif what == "schema":
            with database.transaction() as connection:
                connection.execute(text("UPDATE alembic_version SET version_num = '0001'"))
        elif what == "user":
            url = make_url(database_url).set(username="stranger", password="hunter2")
            set_environment(database_url=url.render_as_string(hide_password=False))
        else:
            set_environment(database_url="postgresql://user:hunter2@127.0.0.1:9/mustit")
        load_settings.cache_clear()

    return take


@pytest.mark.parametrize("what", BROKEN)
def test_a_run_whose_environment_is_broken_says_so_in_its_first_step(
    instance: dg.DagsterInstance, sliced: dg.DagsterRun, broken: Break, what: str
) -> None:
    """It used to end before any step, and its page said that its process had ended."""
    broken(what)

    result = run_job(instance, "crawl_seller", "dmont", tags=sliced.tags)

    said, for_good = BROKEN[what]
    step, reason = failure(result)
    assert step == "minishop_listings"
    assert said in reason
    assert "hunter2" not in reason
    found = step_failure(instance, result.run_id)
    assert found is not None
    assert found.for_good == for_good


def test_a_crawl_is_given_up_at_once_where_its_workers_environment_is_broken(
    database: Database,
    instance: dg.DagsterInstance,
    tick: Tick,
    sliced: dg.DagsterRun,
    broken: Break,
    set_environment: SetEnvironment,
) -> None:
    instance.delete_run(sliced.run_id)
    broken("settings")
    failed = run_job(instance, "crawl_seller", "dmont", tags=sliced.tags)
    set_environment(jwt_secret=JWT_SECRET)

    outcome = tick(due_crawls)

    assert "dmont rests: given up, its last run failed for good with SettingsError" in outcome.skip_message
    given_up = find(database, ExecutionId(sliced.tags[EXECUTION_TAG])).execution
    assert given_up.status is ExecutionStatus.FAILED
    assert failed.run_id in (given_up.error_text or "")


@pytest.mark.usefixtures("set_environment")
@pytest.mark.parametrize(("what", "repeated"), [("settings", 0), ("schema", 0), ("server", 1), ("user", 0)])
def test_a_step_without_its_environment_is_repeated_only_where_that_may_heal_it(
    instance: dg.DagsterInstance, broken: Break, what: str, repeated: int
) -> None:
    @dg.op(retry_policy=dg.RetryPolicy(max_retries=1))
    def work(database: BusinessDatabase) -> None:
        with readable_failures():
            database.open().close()

    @dg.job(resource_defs=RESOURCES)
    def working() -> None:
        work()

    broken(what)
    result = working.execute_in_process(instance=instance, raise_on_error=False)

    assert BROKEN[what][0] in failure(result)[1]
    assert len([event for event in result.all_events if event.is_step_up_for_retry]) == repeated


def test_a_seller_that_cannot_be_crawled_hurts_no_other(
    database: Database,
    instance: dg.DagsterInstance,
    set_environment: SetEnvironment,
    marketplace: RunningSimulator,
    market: MarketplaceControl,
    tick: Tick,
) -> None:
    set_environment(base_url=marketplace.url)
    for seller in ("bad", "good"):
        market.add_seller(seller, 2)
    register(database, "bad", "good")
    market.fault("status", "listing", sellerId="bad", status=400)

    results = {
        str(request.partition_key): run_job(instance, "crawl_seller", request.partition_key, tags=request.tags)
        for request in tick(due_crawls).run_requests
    }

    assert {seller: result.success for seller, result in results.items()} == {"bad": False, "good": True}
    assert "no seller is due" in tick(due_crawls).skip_message
    with database.reading() as connection:
        versions = connection.execute(text("SELECT seller_id, count(*) FROM product_change_sets GROUP BY 1")).all()
    assert [tuple(row) for row in versions] == [("good", 2)]
