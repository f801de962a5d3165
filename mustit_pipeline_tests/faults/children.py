"""Parts of the pipeline in processes of their own, for scenarios that kill or stop them."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.process import BaseProcess

from mustit_pipeline.catalog.processing import BatchSize, process
from mustit_pipeline.delivery.relay import relay
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import open_database
from mustit_pipeline.settings import Settings
from mustit_pipeline_tests.faults.logs import logging_to
from mustit_pipeline_tests.faults.world import World, logs_of

# Many small transactions: a kill meets one of them, or the moment between two.
SMALL = BatchSize(pages=1, bodies=8, versions=4)
IDLE_SECONDS = 0.02
CRAWL = "mustit_pipeline_tests.integration.crawling.child"
COMMAND = "from mustit_pipeline.cli import main; main()"


@contextmanager
def crawling(world: World, settings: Settings, seller_id: str) -> Generator[subprocess.Popen[bytes]]:
    """A child that crawls the seller."""
    with _child(world, settings, ["-m", CRAWL, seller_id]) as started:
        yield started


@contextmanager
def running_crawl(world: World, settings: Settings, seller_id: str) -> Generator[subprocess.Popen[bytes]]:
    """`mustit crawl`: the crawl as a Dagster run."""
    with _child(world, settings, ["-c", COMMAND, "crawl", seller_id]) as started:
        yield started


@contextmanager
def working(world: World, settings: Settings) -> Generator[subprocess.Popen[bytes]]:
    """`mustit worker`."""
    with _child(world, settings, ["-c", COMMAND, "worker"]) as started:
        yield started


@contextmanager
def serving(world: World, settings: Settings) -> Generator[subprocess.Popen[bytes]]:
    """`mustit serve`."""
    with _child(world, settings, ["-c", COMMAND, "serve"]) as started:
        yield started


def environment_of(settings: Settings) -> dict[str, str]:
    """These settings as a process reads them."""
    given = {f"MUSTIT_{name.upper()}": str(value) for name, value in settings.model_dump(exclude_none=True).items()}
    for secret in ("token_key", "jwt_secret"):
        given[f"MUSTIT_{secret.upper()}"] = getattr(settings, secret).get_secret_value()
    return given


@contextmanager
def _child(world: World, settings: Settings, arguments: Sequence[str]) -> Generator[subprocess.Popen[bytes]]:
    with (world.logs / f"child-{time.monotonic_ns()}.log").open("wb") as log:
        command = [sys.executable, *arguments]
        started = subprocess.Popen(
            command, env=os.environ | environment_of(settings), stdout=log, stderr=subprocess.STDOUT
        )
    try:
        yield started
    finally:
        started.kill()
        started.wait()


def processing(settings: Settings, seller_id: str) -> None:
    """Process the seller's bodies for ever."""
    with logging_to(logs_of(settings)):
        database = open_database(settings)
        while True:
            process(database, SellerId(seller_id), now=utc_now, batch=SMALL)
            time.sleep(IDLE_SECONDS)


def relaying(settings: Settings) -> None:
    """Send what waits for ever; what a killed one had in hand is free again after a second."""
    with logging_to(logs_of(settings)):
        database = open_database(settings)
        hasty = settings.model_copy(update={"relay_lease_seconds": 1.0})
        while True:
            relay(database, hasty)
            time.sleep(IDLE_SECONDS)


@contextmanager
def several(*targets: tuple[Callable[..., None], tuple[object, ...]]) -> Generator[Sequence[BaseProcess]]:
    """One process for each target; they are gone at the end, whatever happened to them."""
    # Forked from a clean process that has imported everything: importing takes longer than the work they do.
    context = get_context("forkserver")
    context.set_forkserver_preload([__name__])
    started = [context.Process(target=target, args=arguments, daemon=True) for target, arguments in targets]
    try:
        for one in started:
            one.start()
        yield started
    finally:
        for one in started:
            one.kill()
            one.join()
