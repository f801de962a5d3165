"""Ctrl-C and SIGTERM: long commands end within seconds, quietly and by their exit code, and nothing is lost."""

import re
import signal
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import dagster as dg
import pytest

from mustit_pipeline.cli import main, stopping
from mustit_pipeline.cli.runtime import dagster_instance
from mustit_pipeline.crawling.crawl import Crawl
from mustit_pipeline.crawling.planning import PRODUCT_TYPES
from mustit_pipeline.crawling.steering import open_or_join
from mustit_pipeline.domain.values import ExecutionId, SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline_tests.e2e.asking import explained, settings_of
from mustit_pipeline_tests.e2e.conftest import COMMAND, World, opened_world
from mustit_pipeline_tests.e2e.terminal import KEYS, Terminal
from mustit_pipeline_tests.integration.crawling.checks import check_outcomes

SOON_SECONDS = 30.0
PRODUCTS = 60


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Generator[World]:
    """A home of its own: how slowly its marketplace answers concerns no other test."""
    with opened_world(tmp_path_factory.mktemp("stopping")) as opened:
        yield opened


@contextmanager
def slow(world: World) -> Generator[None]:
    world.market.settings(latencyMs=200)
    try:
        yield
    finally:
        world.market.settings(latencyMs=0)


def fetched(world: World) -> dict[str, int]:
    urls = world.market.requested_urls()
    return {url: times for url, times in urls.items() if "/item/" in url or "/options" in url}


def test_a_crawl_that_is_stopped_by_ctrl_c_ends_quietly_and_the_next_one_fetches_nothing_twice(world: World) -> None:
    """Processes that Dagster had started beside the crawl died of the Ctrl-C with tracebacks, and the exit was 1."""
    seller = "stopped by Ctrl-C"
    world.register(seller, PRODUCTS)
    world.market.reset_audit()
    environment = world.mustit.variables(MUSTIT_MAX_CONCURRENT_REQUESTS="4")
    with slow(world), Terminal([COMMAND, "crawl", seller], environment) as terminal:
        terminal.until(lambda: len(fetched(world)) > 8)
        asked = time.monotonic()
        terminal.press(KEYS["ctrl-c"])
        code = terminal.end()
        took = time.monotonic() - asked

    assert code == 130, terminal.text
    assert took < SOON_SECONDS
    assert "Traceback" not in terminal.text
    assert "the next crawl of this seller goes on from there" in terminal.text
    go_on(world, seller)


def test_a_crawl_that_is_stopped_by_sigterm_prints_its_document_all_the_same(world: World) -> None:
    seller = "stopped by SIGTERM"
    world.register(seller, PRODUCTS)
    world.market.reset_audit()
    with slow(world), world.mustit.start("crawl", seller, "--json", MUSTIT_MAX_CONCURRENT_REQUESTS="4") as process:
        while len(fetched(world)) <= 8:
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=SOON_SECONDS)

    assert process.returncode == 143, err
    assert '"status": "RUNNING"' in out
    assert "Traceback" not in err
    go_on(world, seller)


def go_on(world: World, seller: str) -> None:
    """Crawl the rest: nothing is fetched twice."""
    assert 0 < len(fetched(world)) < 2 * PRODUCTS
    # One that failed would count as a crash of the crawl.
    with dagster_instance(settings_of(world)) as instance:
        assert instance.get_runs(limit=1)[0].status is dg.DagsterRunStatus.CANCELED
    again = explained(world, "crawl", seller, "--json")
    assert (again.code, again.document["completedTasks"], again.document["failedTasks"]) == (0, 2 * PRODUCTS + 1, 0)
    assert set(fetched(world).values()) == {1}
    check_outcomes(world.database, ExecutionId(UUID(again.document["executionId"])))


class Interrupted(dg.ConfigurableResource):
    """A resource during whose setup the signal arrives."""

    number: int

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        signal.raise_signal(signal.Signals(self.number))
        time.sleep(0.1)


@dg.op
def never_begun(interrupted: Interrupted) -> None:
    raise AssertionError("the run was stopped before its first step")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_run_that_is_stopped_before_its_first_step_is_stopped_and_not_failed(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals, code: int
) -> None:
    """It was told as an error, `the run ended before its first step`, with exit 1; and SIGTERM was taken for Ctrl-C."""

    @dg.job(resource_defs={"interrupted": Interrupted(number=number)}, executor_def=dg.in_process_executor)
    def stopped_early() -> None:
        never_begun()

    monkeypatch.setattr(stopping, "heard", [])
    with dg.DagsterInstance.ephemeral() as instance, stopping.noted_signals():
        result = stopped_early.execute_in_process(instance=instance, raise_on_error=False)

    with pytest.raises(stopping.Stopped) as stopped:
        stopping.raise_if_stopped(result)
    assert stopped.value.exit_code == code


def test_a_backfill_that_is_stopped_begins_no_further_seller(world: World) -> None:
    for seller in ("first of two", "second of two"):
        world.register(seller, 40)
    world.market.reset_audit()
    with (
        slow(world),
        world.mustit.start("backfill", "first of two", "second of two", MUSTIT_MAX_CONCURRENT_REQUESTS="4") as process,
    ):
        while len(fetched(world)) < 4:
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=SOON_SECONDS)

    assert (process.returncode, "Traceback" in err) == (130, False), err
    assert not any("second" in url for url in world.market.requested_urls())


def hears_signals(pid: int) -> bool:
    """Whether the command has begun: the interpreter by itself catches no SIGTERM."""
    [caught] = re.findall(r"SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text()) or ["0"]
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


@pytest.mark.parametrize(("command", "seconds"), [("reconcile", 0.0), ("reconcile", 0.3), ("doctor", 0.8)])
def test_a_command_that_is_stopped_at_any_moment_says_nothing(world: World, command: str, seconds: float) -> None:
    with world.mustit.start(command) as process:
        while not hears_signals(process.pid):
            assert process.poll() is None
            time.sleep(0.01)
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=SOON_SECONDS)

    # One that was done before the signal came has its own exit code, or its interpreter no longer hears signals.
    assert process.returncode in (130, 0, 1, -signal.SIGINT)
    assert "Traceback" not in err
    assert "Aborted" not in err


def test_ctrl_c_while_the_first_imports_are_under_way_is_quiet_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under load they take a second, and Python printed where it was."""
    monkeypatch.setattr(stopping, "hear_signals", lambda: signal.raise_signal(signal.SIGINT))

    with pytest.raises(SystemExit) as ended:
        main()

    assert ended.value.code == 130


def test_a_reconciliation_that_is_stopped_waits_for_no_answer(world: World) -> None:
    seller = "compared"
    world.register(seller, 30)
    assert explained(world, "crawl", seller).code == 0
    assert explained(world, "relay").code == 0
    fault = world.receiver.fault("slow", "any", seconds=4)
    try:
        with world.mustit.start("reconcile", "--seller", seller) as process:
            time.sleep(2.5)
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=SOON_SECONDS)
    finally:
        world.receiver.clear_faults(fault)

    assert (process.returncode, "Traceback" in err) == (143, False), err


def test_a_signal_between_requests_is_told_apart_too(world: World) -> None:
    """Dagster makes one exception of both signals, wherever a step is when it comes."""
    world.register("unprocessed", 30)
    opened = open_or_join(world.database, SellerId("unprocessed"), triggered_by="test", now=utc_now())
    work = Crawl(world.database, settings_of(world), opened.stored)
    work.sweep(30)
    work.fetch_products(PRODUCT_TYPES, 30)
    with world.database.transaction() as held:
        # No change set can be written meanwhile, but everything can be read.
        held.exec_driver_sql("LOCK TABLE product_change_sets IN EXCLUSIVE MODE")
        with world.mustit.start("crawl", "unprocessed") as process:
            while not held.exec_driver_sql("SELECT count(*) FROM pg_locks WHERE NOT granted").scalar_one():
                assert process.poll() is None
                time.sleep(0.05)
            process.send_signal(signal.SIGTERM)
            try:
                _, err = process.communicate(timeout=SOON_SECONDS)
            finally:
                process.kill()

    assert (process.returncode, "Traceback" in err) == (143, False), err
