"""Real `mustit` processes with a home of their own, against simulated servers that the tests started."""

import json
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url

from mustit_pipeline import embedded
from mustit_pipeline.domain.values import CrawlingInterval, SellerId
from mustit_pipeline.foundation.database import Database, make_engine
from mustit_pipeline.sellers import registry
from mustit_pipeline.simulator.control import MarketplaceControl, ProductServerControl
from mustit_pipeline_tests.clusters import attach_migrated
from mustit_pipeline_tests.simulators import forked_marketplace, forked_product_server

COMMAND = str(Path(sys.executable).parent / "mustit")
WIDE_OPEN = {
    "MUSTIT_REQUESTS_PER_HOUR": "100000",
    "MUSTIT_MIN_REQUEST_GAP_SECONDS": "0",
    "MUSTIT_RETRY_BASE_SECONDS": "0.05",
    # Most tests change a field and expect the next crawl to find it.
    "MUSTIT_RECRAWL": "everything",
}
PATIENCE_SECONDS = 120.0
# No command, and no process of `mustit up`, imports boto3 or botocore: here they are broken.
WITHOUT_AWS = str(Path(__file__).parent / "without_aws")
# No server listens on the discard port of a test machine.
NOWHERE = "http://127.0.0.1:9"


@dataclass(frozen=True)
class Answer:
    """What a command came to."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document; anything else on stdout fails here."""
        return json.loads(self.out)


@dataclass(frozen=True)
class Mustit:
    """The command line, as a person would use it in one home."""

    home: Path
    environment: dict[str, str] = field(default_factory=dict[str, str])

    def variables(self, **changed: str) -> dict[str, str]:
        """The whole environment of a command."""
        outside = {name: value for name, value in os.environ.items() if not name.startswith(("MUSTIT_", "DAGSTER_"))}
        outside["PYTHONPATH"] = os.pathsep.join(filter(None, (WITHOUT_AWS, outside.get("PYTHONPATH"))))
        return {**outside, "MUSTIT_HOME": str(self.home), "LANG": "C.UTF-8", **self.environment, **changed}

    def start(self, *arguments: str, **changed: str) -> subprocess.Popen[str]:
        """Start a command and go on."""
        return subprocess.Popen(
            [COMMAND, *arguments],
            env=self.variables(**changed),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *arguments: str, **changed: str) -> Answer:
        """Run a command to its end."""
        with self.start(*arguments, **changed) as process:
            try:
                out, err = process.communicate(timeout=PATIENCE_SECONDS)
            finally:
                process.kill()
        return Answer(process.returncode, out, err)


@dataclass(frozen=True)
class World:
    """A home with running servers, and both ends of the pipeline."""

    mustit: Mustit
    market: MarketplaceControl
    receiver: ProductServerControl
    database: Database

    def register(self, seller_id: str, products: int) -> None:
        """A seller on both sides, without the seconds that a command takes."""
        self.market.add_seller(seller_id, products)
        registry.register(self.database, SellerId(seller_id), seller_id, CrawlingInterval.DEFAULT, datetime.now(UTC))


@contextmanager
def opened_world(folder: Path) -> Generator[World]:
    """A home with its servers, which stay up between commands."""
    home = folder / "home"
    with (
        forked_marketplace(folder / "simulator", seed=7) as marketplace,
        forked_product_server(folder / "simulator") as product_server,
        MarketplaceControl(marketplace.url) as market,
        ProductServerControl(product_server.url) as receiver,
    ):
        servers = attach_migrated(home)
        database = Database(make_engine(make_url(servers.database_url)))
        try:
            urls = {"MUSTIT_BASE_URL": marketplace.url, "MUSTIT_PRODUCT_SERVER_URL": product_server.url}
            yield World(Mustit(home, {**WIDE_OPEN, **urls}), market, receiver, database)
        finally:
            database.close()
            embedded.stop(home)


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Generator[World]:
    """One home for all tests of a session, each with sellers of its own."""
    with opened_world(tmp_path_factory.mktemp("e2e")) as opened:
        yield opened
