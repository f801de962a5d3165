"""Sensors, evaluated against a real instance and a real database."""

import time
from collections.abc import Sequence

import dagster as dg
import pytest
from sqlalchemy import text

from mustit_pipeline.crawling import steering
from mustit_pipeline.crawling.steering import deactivate_seller, open_or_join
from mustit_pipeline.defs.crawl.due import due_crawls
from mustit_pipeline.defs.crawl.partition_sync import PartitionChanges, partition_changes, seller_partitions
from mustit_pipeline.defs.delivery.waiting import one_at_a_time, waiting_outbox
from mustit_pipeline.defs.monitoring.checks import first_check
from mustit_pipeline.defs.resources import SettingsResource, resources_with
from mustit_pipeline.delivery.sql import breakers
from mustit_pipeline.delivery.sql.breakers import PRODUCT_SERVER
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.foundation.liveness import find_dead, hold_liveness
from mustit_pipeline.settings import Settings
from mustit_pipeline.simulator.control import MarketplaceControl
from mustit_pipeline.simulator.process import RunningSimulator
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.dagster_defs.conftest import GRACE_SECONDS, AddRun, SetEnvironment, Tick, keys
from mustit_pipeline_tests.integration.crawls import crawl, register

Status = dg.DagsterRunStatus
ODD = "한글 & a/b 50%"


def test_partitions_follow_the_registry_but_never_vanish_under_a_run() -> None:
    changes = partition_changes(registered=["a", "c"], partitions=["b", "c", "d"], busy=["d", "c"])

    assert changes == PartitionChanges(add=["a"], remove=["b"])


def test_the_partition_sensor_adds_and_removes_in_one_tick(
    database: Database, instance: dg.DagsterInstance, tick: Tick, add_run: AddRun
) -> None:
    register(database, "dmont", ODD)
    instance.add_dynamic_partitions("sellers", ["forgotten", "working"])
    add_run("working", Status.STARTING)

    tick(seller_partitions)

    assert set(instance.get_dynamic_partitions("sellers")) == {"dmont", ODD, "working"}


def test_a_seller_that_is_registered_during_a_tick_keeps_its_partition(
    database: Database, instance: dg.DagsterInstance, tick: Tick, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = instance.get_dynamic_partitions

    def registered_just_before(name: str) -> Sequence[str]:
        if not instance.has_dynamic_partition("sellers", "new"):
            register(database, "new")
            instance.add_dynamic_partitions("sellers", ["new"])
        return look(name)

    monkeypatch.setattr(instance, "get_dynamic_partitions", registered_just_before)
    tick(seller_partitions)

    assert instance.get_dynamic_partitions("sellers") == ["new"]


def test_a_due_seller_gets_a_run_of_its_own_execution_and_a_partition(
    database: Database, instance: dg.DagsterInstance, tick: Tick
) -> None:
    register(database, ODD)

    [request] = tick(due_crawls).run_requests

    opened = open_or_join(database, SellerId(ODD), triggered_by="test", now=utc_now())
    assert opened.joined
    assert opened.stored.triggered_by == "schedule"
    assert request.partition_key == ODD
    assert request.tags["mustit/execution"] == str(opened.stored.execution.id)
    assert instance.has_dynamic_partition("sellers", ODD)


def test_a_crawl_that_another_process_opened_gets_a_run_and_its_seller_a_partition(
    database: Database, instance: dg.DagsterInstance, tick: Tick
) -> None:
    """The web server knows nothing of Dagster: it registers sellers and opens executions, and no partition is there."""
    register(database, "dmont", ODD)
    opened = [steering.trigger(database, SellerId(one), triggered_by="key x", now=utc_now()) for one in ("dmont", ODD)]

    requests = tick(due_crawls).run_requests

    wanted = {one.stored.seller_id.value: str(one.stored.id) for one in opened}
    assert {request.partition_key: request.tags["mustit/execution"] for request in requests} == wanted
    assert set(instance.get_dynamic_partitions("sellers")) == set(wanted)


def test_a_seller_that_is_not_due_waits_for_its_interval(database: Database, tick: Tick) -> None:
    register(database, "dmont")
    opened = open_or_join(database, SellerId("dmont"), triggered_by="test", now=utc_now())
    steering.cancel(database, opened.stored.execution.id, utc_now())

    assert not tick(due_crawls).run_requests


def test_where_no_seller_is_due_requests_to_spare_go_to_a_light_crawl(
    database: Database, tick: Tick, set_environment: SetEnvironment
) -> None:
    set_environment(recrawl="adaptive")
    register(database, "dmont")
    with database.transaction() as connection:
        connection.execute(text("UPDATE crawling_schedules SET next_due_at = now() + interval '20 hours'"))
        connection.execute(
            text("""
                INSERT INTO recrawl_sellers (seller_id, swept_at, products, detail_changes, detail_hours)
                VALUES ('dmont', now() - interval '2 hours', 1000, 100, 1000)
            """)
        )

    [request] = tick(due_crawls).run_requests

    assert request.partition_key == "dmont"
    with database.reading() as connection:
        opened = connection.execute(text("SELECT execution_id, kind FROM crawling_schedule_executions")).one()
    assert (str(opened.execution_id), opened.kind) == (request.tags["mustit/execution"], "LIGHT")


def test_an_open_execution_goes_on_with_a_run_key_that_was_never_used(database: Database, tick: Tick) -> None:
    register(database, "dmont")

    ticks = [tick(due_crawls).run_requests for _ in range(3)]

    assert [keys(requests) for requests in ticks] == [["dmont"]] * 3
    assert len({requests[0].run_key for requests in ticks}) == 3
    assert len({requests[0].tags["mustit/execution"] for requests in ticks}) == 1


def test_a_seller_with_an_unfinished_run_is_left_alone(database: Database, tick: Tick, add_run: AddRun) -> None:
    register(database, "a", "b", "c", "d")
    for seller_id, status in (("a", Status.STARTING), ("b", Status.STARTED), ("c", Status.CANCELING)):
        add_run(seller_id, status)
    add_run("d", Status.SUCCESS)

    assert keys(tick(due_crawls).run_requests) == ["d"]


def test_no_more_is_requested_than_slots_are_free_and_the_longest_due_come_first(
    database: Database, tick: Tick, add_run: AddRun
) -> None:
    names = ["e", "d", "c", "b", "a"]
    register(database, *names)
    with database.transaction() as connection:
        for age, name in enumerate(reversed(names)):
            connection.execute(
                text(
                    "UPDATE crawling_schedules SET next_due_at = now() - make_interval(hours => :age) "
                    "WHERE seller_id = :name"
                ),
                {"age": age + 1, "name": name},
            )
    add_run("another", Status.STARTED)

    assert keys(tick(due_crawls).run_requests) == names[:3]


def test_a_tick_says_whom_it_starts_and_how_many_wait(
    database: Database, tick: Tick, add_run: AddRun, capfd: pytest.CaptureFixture[str]
) -> None:
    register(database, "a", "b", "c", "d", "busy")
    with database.transaction() as connection:
        connection.execute(text("UPDATE crawling_schedules SET next_due_at = now() - interval '1 hour'"))
    open_or_join(database, SellerId("d"), triggered_by="test", now=utc_now())
    add_run("busy", Status.STARTED)
    add_run("another", Status.STARTED)

    tick(due_crawls)

    assert "2 slices requested: a, b; 2 sellers wait for a free slot" in capfd.readouterr().err


def test_nothing_is_requested_while_every_slot_is_taken(database: Database, tick: Tick, add_run: AddRun) -> None:
    register(database, "dmont")
    for number in range(4):
        add_run(f"busy {number}", Status.STARTED)

    outcome = tick(due_crawls)

    assert not outcome.run_requests
    assert "busy 0" in outcome.skip_message


def test_paused_executions_and_inactive_sellers_are_left_alone(database: Database, tick: Tick) -> None:
    register(database, "paused", "inactive")
    stored = open_or_join(database, SellerId("paused"), triggered_by="test", now=utc_now()).stored
    with database.transaction() as connection:
        connection.execute(
            text(
                "UPDATE crawling_schedule_executions SET status = 'RUNNING', started_at = now() "
                "WHERE seller_id = 'paused'"
            )
        )
    steering.pause(database, stored.execution.id)
    deactivate_seller(database, SellerId("inactive"), utc_now())

    assert not tick(due_crawls).run_requests


def test_a_run_whose_process_was_killed_does_not_block_its_seller_for_ever(
    database: Database, instance: dg.DagsterInstance, tick: Tick, add_run: AddRun
) -> None:
    """Dagster's default launcher keeps such a run STARTED, whatever run monitoring does."""
    register(database, "killed", "alive")
    long_ago = time.time() - GRACE_SECONDS - 1
    killed = add_run("killed", Status.STARTED, started_at=long_ago)
    alive = add_run("alive", Status.STARTED, started_at=long_ago)

    with hold_liveness(database, alive.run_id):
        requested = keys(tick(due_crawls).run_requests)

    assert requested == ["killed"]
    assert _status(instance, killed) is Status.FAILURE
    assert _status(instance, alive) is Status.STARTED


def test_a_run_that_lost_its_lock_with_its_connection_is_not_taken_for_dead(
    database: Database, instance: dg.DagsterInstance, tick: Tick, add_run: AddRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL was restarted: the sensor may be back before the run has its lock again."""
    register(database, "dmont")
    run = add_run("dmont", Status.STARTED, started_at=time.time() - GRACE_SECONDS - 1)
    sleep = time.sleep

    def until_it_is_back(seconds: float) -> None:
        deadline = time.monotonic() + 60
        while find_dead(database, [run.run_id]):
            assert time.monotonic() < deadline, "the lock was never taken again"
            sleep(0.05)

    with hold_liveness(database, run.run_id):
        with database.transaction() as connection:
            connection.execute(
                text("SELECT pg_terminate_backend(pid, 10000) FROM pg_locks WHERE locktype = 'advisory'")
            )
        with monkeypatch.context() as patched:
            patched.setattr(time, "sleep", until_it_is_back)
            assert not tick(due_crawls).run_requests

    assert _status(instance, run) is Status.STARTED


def test_a_run_that_has_just_started_is_not_taken_for_dead(
    database: Database, instance: dg.DagsterInstance, tick: Tick, add_run: AddRun
) -> None:
    register(database, "dmont")
    run = add_run("dmont", Status.STARTED, started_at=time.time())

    assert not tick(due_crawls).run_requests
    assert _status(instance, run) is Status.STARTED


def test_asking_for_unfinished_runs_changes_none(
    database: Database, instance: dg.DagsterInstance, tick: Tick, add_run: AddRun
) -> None:
    """Only due_crawls and the recovery fail runs without a process; the others pass them over."""
    killed = add_run("killed", Status.STARTED, started_at=time.time() - GRACE_SECONDS - 1)

    tick(seller_partitions)

    assert _status(instance, killed) is Status.STARTED
    tick(due_crawls)
    assert _status(instance, killed) is Status.FAILURE


def test_a_sensor_takes_the_settings_that_it_is_given_whatever_the_environment_says(
    database: Database, instance: dg.DagsterInstance, make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    class OneSlot(SettingsResource):
        def read(self) -> Settings:
            return make_settings(crawls_at_once=1)

    monkeypatch.setenv("MUSTIT_DATABASE_URL", "postgresql://unused@127.0.0.1:9/nowhere")
    monkeypatch.setenv("MUSTIT_CRAWLS_AT_ONCE", "4")
    register(database, "a", "b")

    with dg.build_sensor_context(instance=instance, resources=resources_with(OneSlot())) as context:
        asked = due_crawls(context)

    assert isinstance(asked, dg.SensorResult)
    assert len(asked.run_requests or []) == 1


@pytest.fixture
def waiting_events(
    database: Database, make_settings: MakeSettings, marketplace: RunningSimulator, market: MarketplaceControl
) -> None:
    """A crawled seller whose products were never sent."""
    market.add_seller("dmont", 2)
    register(database, "dmont")
    crawl(database, make_settings(base_url=marketplace.url), "dmont")


def test_a_relay_that_runs_already_is_asked_for_only_once_it_has_ended() -> None:
    obstacles = {"a": None, "b": None, "c": "nothing waits"}

    assert one_at_a_time(obstacles, running=["b", "c"]) == {
        "a": None,
        "b": "a run of b is running already",
        "c": "nothing waits",
    }


def test_nothing_is_relayed_while_no_event_waits(tick: Tick) -> None:
    assert tick(waiting_outbox).skip_message == "no product event waits"


@pytest.mark.usefixtures("waiting_events")
def test_waiting_events_start_one_relay_at_a_time(
    database: Database, instance: dg.DagsterInstance, tick: Tick, add_run: AddRun, set_environment: SetEnvironment
) -> None:
    assert "MUSTIT_PRODUCT_SERVER_URL" in tick(waiting_outbox).skip_message

    set_environment(product_server_url="http://127.0.0.1:9")
    assert len(tick(waiting_outbox).run_requests) == 1

    running = add_run(None, Status.STARTED, job="relay_product_outbox")
    assert "running already" in tick(waiting_outbox).skip_message
    instance.report_run_canceled(running)

    with database.transaction() as connection:
        breakers.record_failures(connection, PRODUCT_SERVER, failures=5, threshold=5, cooldown=60)
    assert "unreachable" in tick(waiting_outbox).skip_message


def _status(instance: dg.DagsterInstance, run: dg.DagsterRun) -> dg.DagsterRunStatus:
    found = instance.get_run_by_id(run.run_id)
    assert found is not None
    return found.status


def test_the_criteria_are_judged_once_after_the_first_crawl_of_a_new_installation(
    database: Database, tick: Tick, add_run: AddRun
) -> None:
    register(database, "s")
    opened = open_or_join(database, SellerId("s"), triggered_by="test", now=utc_now()).stored.execution
    assert tick(first_check).skip_message == "no crawl has ended yet"

    with database.transaction() as connection:
        completed = "UPDATE crawling_schedule_executions SET status = 'COMPLETED' WHERE execution_id = :id"
        connection.execute(text(completed), {"id": opened.id.value})
    asked = [tick(first_check).run_requests[0].run_key for _ in range(2)]
    assert asked[0] is not None
    assert asked[0] == asked[1]

    add_run(None, Status.SUCCESS, job="check_criteria")
    assert tick(first_check).skip_message == "the criteria are judged every hour"
