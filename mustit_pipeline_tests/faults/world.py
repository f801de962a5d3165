"""A world of its own for a fault scenario: real servers, a fresh database, both simulators."""

import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import make_url

from mustit_pipeline import embedded
from mustit_pipeline.agents import roster
from mustit_pipeline.settings import Settings
from mustit_pipeline.simulator.control import MarketplaceControl, ProductServerControl
from mustit_pipeline.simulator.process import start_marketplace, start_product_server
from mustit_pipeline.store import schema
from mustit_pipeline.store.database import Database, make_engine
from mustit_pipeline_tests.conftest import JWT_SECRET, TOKEN_KEY


@dataclass(frozen=True)
class World:
    """Everything that a scenario breaks."""

    database: Database
    settings: Settings
    market: MarketplaceControl
    receiver: ProductServerControl

    def with_settings(self, **changed: Any) -> Settings:
        """The world's settings, some of them changed."""
        return self.settings.model_copy(update=changed)


@contextmanager
def fresh_world() -> Generator[World]:
    """Start it all, and leave nothing behind."""
    home = Path(tempfile.mkdtemp(prefix="mustit-faults-"))
    servers = embedded.attach(home)
    try:
        with (
            start_marketplace(
                state=home / "simulator", seed=11, requests_per_window=1_000_000, min_gap_seconds=0
            ) as marketplace,
            start_product_server(state=home / "simulator") as product_server,
            MarketplaceControl(marketplace.url) as market,
            ProductServerControl(product_server.url) as receiver,
        ):
            settings = Settings(  # pyright: ignore[reportCallIssue]
                home=home,
                database_url=servers.database_url,
                dagster_database_url=servers.database_url,
                redis_url=servers.redis_url,
                token_key=TOKEN_KEY,  # pyright: ignore[reportArgumentType]
                jwt_secret=JWT_SECRET,  # pyright: ignore[reportArgumentType]
                base_url=marketplace.url,
                product_server_url=product_server.url,
                requests_per_hour=1_000_000,
                min_request_gap_seconds=0,
                retry_base_seconds=0.05,
                lease_seconds=2,
                total_timeout_seconds=5,
            )
            database = Database(make_engine(make_url(servers.database_url)))
            with database.transaction() as connection:
                schema.upgrade(connection)
                roster.ensure_builtin(connection)
            try:
                yield World(database, settings, market, receiver)
            finally:
                database.close()
    finally:
        embedded.stop(home)
        shutil.rmtree(home, ignore_errors=True)
