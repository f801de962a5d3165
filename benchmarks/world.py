"""What a benchmark runs against: embedded servers, one simulated marketplace, and fresh databases."""

import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import redis
from sqlalchemy import URL, make_url

from benchmarks.job import Job
from mustit_pipeline import embedded
from mustit_pipeline.agents import roster
from mustit_pipeline.domain.values import CrawlingInterval, SellerId
from mustit_pipeline.embedded import Servers
from mustit_pipeline.foundation import schema
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database, make_engine
from mustit_pipeline.sellers import registry
from mustit_pipeline.simulator.control import MarketplaceControl
from mustit_pipeline.simulator.process import start_marketplace

ROOT = Path(__file__).parents[1]
PAGE_SIZE = 500
LISTING_PATH = "/mustit-api/facade-api/v1/searchmini-shop-search"
CONCURRENCY = 100
# More than requests in flight, because an agent has only one of them.
AGENTS = 150
WIDE_OPEN = 10_000_000


@dataclass(frozen=True, slots=True)
class World:
    """The servers of one benchmark."""

    home: Path
    servers: Servers
    url: str
    market: MarketplaceControl

    def add_seller(self, seller_id: str, products: int) -> None:
        """A seller whose products are all made before anybody's clock runs."""
        self.market.add_seller(seller_id, products)
        self.market.products(seller_id)

    def fresh_database(self) -> str:
        """The address of an empty database."""
        name = f"bench_{uuid4().hex[:12]}"
        with self._admin() as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return _plain(make_url(self.servers.database_url).set(database=name))

    def drop(self, database_url: str) -> None:
        """Remove a database, so that no round carries the weight of the one before."""
        with self._admin() as connection:
            connection.execute(f"DROP DATABASE {make_url(database_url).database} WITH (FORCE)".encode())

    def settle(self) -> None:
        """Let PostgreSQL write down what the contender before has left to it."""
        with self._admin() as connection:
            connection.execute("CHECKPOINT")

    def prepare_ours(self, database_url: str, seller_id: str, agents: int) -> None:
        """Schema, agents and the registered seller; and a Redis that knows nothing yet."""
        redis.Redis.from_url(self.servers.redis_url).flushall()
        with connected(database_url) as database:
            with database.transaction() as connection:
                schema.upgrade(connection)
                roster.load(connection, [f"Mozilla/5.0 (X11; Linux x86_64) agent/{number}" for number in range(agents)])
            register(database, seller_id)

    def job(
        self,
        seller_id: str,
        database_url: str,
        *,
        first: bool,
        recrawl: str = "everything",
        concurrency: int = CONCURRENCY,
        min_gap_seconds: float = 0.0,
    ) -> Job:
        """The same for every contender but for the database."""
        return Job(
            base_url=self.url,
            listing_path=LISTING_PATH,
            seller_id=seller_id,
            page_size=PAGE_SIZE,
            concurrency=concurrency,
            database_url=database_url,
            redis_url=self.servers.redis_url,
            home=str(self.home / "ours"),
            first=first,
            recrawl=recrawl,
            min_gap_seconds=min_gap_seconds,
        )

    def _admin(self) -> psycopg.Connection[Any]:
        return psycopg.connect(_plain(make_url(self.servers.database_url).set(database="postgres")), autocommit=True)


@contextmanager
def opened(
    *, requests_per_window: int = WIDE_OPEN, window_seconds: float = 3600.0, min_gap_seconds: float = 0.0
) -> Generator[World]:
    """Start everything in a folder of its own; stop and remove it at the end."""
    home = Path(tempfile.mkdtemp(prefix="mustit-bench-"))
    try:
        servers = embedded.attach(home)
        with (
            start_marketplace(
                state=home / "simulator",
                seed=7,
                requests_per_window=requests_per_window,
                window_seconds=window_seconds,
                min_gap_seconds=min_gap_seconds,
                gap_tolerance_seconds=0.0,
                listing_path=LISTING_PATH,
            ) as marketplace,
            MarketplaceControl(marketplace.url) as market,
        ):
            yield World(home, servers, marketplace.url, market)
    finally:
        embedded.stop(home)
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def connected(database_url: str) -> Generator[Database]:
    """A database of ours, for work in this process."""
    database = Database(make_engine(make_url(database_url).set(drivername="postgresql+psycopg")))
    try:
        yield database
    finally:
        database.close()


def register(database: Database, seller_id: str) -> None:
    """A seller that is crawled from now on."""
    registry.register(database, SellerId(seller_id), seller_id, CrawlingInterval.DEFAULT, utc_now())


def _plain(url: URL) -> str:
    """An address that every driver understands."""
    return url.set(drivername="postgresql").render_as_string(hide_password=False)
