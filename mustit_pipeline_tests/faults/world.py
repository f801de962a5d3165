"""A world of its own for a fault scenario: real servers, a fresh database, both simulators, and all that is logged."""

import shutil
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import make_url, text

from mustit_pipeline import embedded
from mustit_pipeline.delivery.relay import relay
from mustit_pipeline.foundation.database import Database, make_engine
from mustit_pipeline.outbox.sql import outbox
from mustit_pipeline.settings import Settings
from mustit_pipeline.simulator.control import MarketplaceControl, ProductServerControl
from mustit_pipeline_tests.clusters import attach_migrated
from mustit_pipeline_tests.conftest import JWT_SECRET, TOKEN_KEY, dagster_beside
from mustit_pipeline_tests.faults.logs import logging_to
from mustit_pipeline_tests.simulators import forked_marketplace, forked_product_server

# Far longer than anything here takes on the slowest machine: a wait of that length is a failure.
PATIENCE_SECONDS = 120.0


@dataclass(frozen=True)
class World:
    """Everything that a scenario breaks."""

    database: Database
    settings: Settings
    market: MarketplaceControl
    receiver: ProductServerControl

    @property
    def logs(self) -> Path:
        """Where this process and its children log to."""
        return logs_of(self.settings)

    def logged(self) -> str:
        """All that was logged so far."""
        return "".join(file.read_text(errors="replace") for file in sorted(self.logs.iterdir()))

    def with_settings(self, **changed: Any) -> Settings:
        """The world's settings, some of them changed."""
        return self.settings.model_copy(update=changed)

    def number(self, query: str, **values: Any) -> int:
        """One number from the database."""
        with self.database.reading() as connection:
            return connection.execute(text(query), values).scalar_one()

    def deliver(self, settings: Settings) -> None:
        """Send until nothing waits; nothing may end FAILED."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        patient = settings.model_copy(update={"product_server_breaker_seconds": 0.5})
        while True:
            relay(self.database, patient, patience_seconds=10)
            with self.database.reading() as connection:
                counts = outbox.counts(connection)
            if counts.failed:
                raise AssertionError(f"{counts.failed} events are FAILED")
            if not counts.waiting + counts.sending:
                return
            if time.monotonic() > deadline:
                raise AssertionError(f"{counts.waiting + counts.sending} events still wait")


def logs_of(settings: Settings) -> Path:
    """The folder of a world's logs."""
    return settings.home / "scenario"


def wait_until(
    condition: Callable[[], object], what: str, *, every: float = 0.005, patience: float = PATIENCE_SECONDS
) -> None:
    """Until it is so."""
    deadline = time.monotonic() + patience
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"it never came to that: {what}")
        time.sleep(every)


@contextmanager
def fresh_world() -> Generator[World]:
    """Start it all, and leave nothing behind."""
    home = Path(tempfile.mkdtemp(prefix="mustit-faults-"))
    servers = attach_migrated(home)
    try:
        with (
            forked_marketplace(home / "simulator", seed=11) as marketplace,
            forked_product_server(home / "simulator") as product_server,
            MarketplaceControl(marketplace.url) as market,
            ProductServerControl(product_server.url) as receiver,
        ):
            settings = Settings(  # pyright: ignore[reportCallIssue]
                home=home,
                database_url=servers.database_url,
                dagster_database_url=dagster_beside(servers.database_url),
                redis_url=servers.redis_url,
                token_key=TOKEN_KEY,  # pyright: ignore[reportArgumentType]
                jwt_secret=JWT_SECRET,  # pyright: ignore[reportArgumentType]
                base_url=marketplace.url,
                product_server_url=product_server.url,
                requests_per_hour=1_000_000,
                min_request_gap_seconds=0,
                retry_base_seconds=0.05,
                recrawl="everything",
                outbox_retry_base_seconds=0.05,
                lease_seconds=2,
                total_timeout_seconds=5,
            )
            logs_of(settings).mkdir()
            database = Database(make_engine(make_url(servers.database_url)))
            try:
                with logging_to(logs_of(settings)):
                    yield World(database, settings, market, receiver)
            finally:
                database.close()
    finally:
        embedded.stop(home)
        shutil.rmtree(home, ignore_errors=True)
