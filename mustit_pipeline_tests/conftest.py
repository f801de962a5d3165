"""Real servers for every test that asks: PostgreSQL and Redis once per process, a database as new for each test."""

import base64
import gc
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import hypothesis
import psycopg
import pytest
import structlog
from argon2 import PasswordHasher
from psycopg import sql
from sqlalchemy import make_url

from mustit_pipeline import embedded
from mustit_pipeline.access import passwords
from mustit_pipeline.embedded import Servers
from mustit_pipeline.foundation.database import Database, make_engine
from mustit_pipeline.settings import Settings, load_settings
from mustit_pipeline.simulator.control import MarketplaceControl, ProductServerControl
from mustit_pipeline.simulator.process import RunningSimulator
from mustit_pipeline_tests.clusters import attach_migrated
from mustit_pipeline_tests.databases import TestDatabases
from mustit_pipeline_tests.simulators import forked_marketplace, forked_product_server

if TYPE_CHECKING:
    from mustit_pipeline_tests.simulated_aws import SimulatedAws
    from mustit_pipeline_tests.strict_aws import StrictAws

TOKEN_KEY = base64.b64encode(bytes(range(32))).decode()
JWT_SECRET = "only-for-tests-only-for-tests-only"
SAMPLES = Path(__file__).parents[2] / "shared" / "samples"

NO_CHROMIUM = "no Chromium was found on this machine"
NO_JQ = "no curl and jq were found on this machine"

MakeSettings = Callable[..., Settings]


@dataclass(frozen=True)
class TestServers:
    """The servers of this test process; `template` is a database with the whole schema and the built-in agents."""

    __test__ = False

    servers: Servers
    template: str

    def admin(self) -> psycopg.Connection[Any]:
        """A connection that can make and drop databases."""
        url = make_url(self.servers.database_url)
        return psycopg.connect(
            host=str(url.query["host"]), port=5432, user="postgres", dbname="postgres", autocommit=True
        )


def pytest_configure() -> None:
    """Nothing that surrounds the tests decides about them."""
    # A shell that runs them in the background may ignore signals; what the tests start must hear them all the same.
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)
    # How long an example takes says more about the machine than about the code.
    hypothesis.settings.register_profile("untimed", deadline=None)
    hypothesis.settings.load_profile("untimed")
    gc.disable()


def pytest_collection_finish() -> None:
    """What is imported stays: to look through it again and again takes a tenth of the CPU time of all tests."""
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    gc.unfreeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was not looked at is said at the end, where it is read."""
    for reason in (NO_CHROMIUM, NO_JQ):
        unseen = [one for one in terminalreporter.stats.get("skipped", []) if reason in str(one.longrepr)]
        if unseen:
            names = ", ".join(one.nodeid for one in unseen)
            terminalreporter.write_line(f"SKIPPED, because {reason}: {names}", yellow=True, bold=True)


@pytest.fixture(autouse=True)
def usual_logging() -> None:
    """A command that runs in this process, for a test or a fixture, configures logging for all of it."""
    structlog.reset_defaults()


@pytest.fixture(autouse=True)
def _fresh_settings(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """No test sees the settings that another one has read, nor the DAGSTER_HOME that a command has set."""
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    load_settings.cache_clear()
    yield
    load_settings.cache_clear()


@pytest.fixture
def cheap_passwords(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """For tests that set many passwords, none of which is worth the usual work."""
    monkeypatch.setattr(passwords, "HASHER", PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
    passwords.unknown_hash.cache_clear()
    yield
    passwords.unknown_hash.cache_clear()


@pytest.fixture(scope="session")
def test_servers() -> Generator[TestServers]:
    # Not under pytest's own folder: every session closes that to other accounts, and as root PostgreSQL is one.
    home = Path(tempfile.mkdtemp(prefix="mustit-tests-"))
    servers = attach_migrated(home)
    template = "template_mustit"
    started = TestServers(servers, template)
    with started.admin() as connection:
        connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE mustit").format(sql.Identifier(template)))
        # No test kills these servers: a commit need not wait for the disk.
        connection.execute("ALTER ROLE postgres SET synchronous_commit = off")
    yield started
    embedded.stop(home)
    shutil.rmtree(home)


@pytest.fixture(scope="session")
def test_databases(test_servers: TestServers) -> TestDatabases:
    return TestDatabases(make_url(test_servers.servers.database_url), test_servers.template)


@pytest.fixture
def database_url(
    request: pytest.FixtureRequest, test_servers: TestServers, test_databases: TestDatabases
) -> Generator[str]:
    """The address of a database that is as new, with the schema in it."""
    name = test_databases.take(untouched=request.node.get_closest_marker("untouched_database") is not None)
    yield make_url(test_servers.servers.database_url).set(database=name).render_as_string(hide_password=False)
    test_databases.give_back(name)


@pytest.fixture
def empty_database_url(test_servers: TestServers) -> Generator[str]:
    """The address of a database with nothing in it, not even a schema: of ours, or for Dagster's own."""
    name = f"empty_{uuid4().hex}"
    with test_servers.admin() as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    yield make_url(test_servers.servers.database_url).set(database=name).render_as_string(hide_password=False)
    with test_servers.admin() as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def free_port() -> int:
    """A port without a listener."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def dagster_beside(database_url: str) -> str:
    """Dagster's own database on the server of a business database."""
    return str(make_url(database_url).set(drivername="postgresql", database="mustit_dagster"))


@pytest.fixture
def database(database_url: str) -> Generator[Database]:
    opened = Database(make_engine(make_url(database_url)))
    yield opened
    opened.close()


@pytest.fixture
def make_settings(database_url: str, tmp_path: Path) -> MakeSettings:
    """Settings for the test's own database; limits wide open unless a test narrows them."""

    def make(**changed: Any) -> Settings:
        values: dict[str, Any] = {
            "home": tmp_path / "home",
            "database_url": database_url,
            "dagster_database_url": dagster_beside(database_url),
            "token_key": TOKEN_KEY,
            "jwt_secret": JWT_SECRET,
            "redis_url": "off",
            # No server listens on the discard port of a test machine.
            "base_url": "http://127.0.0.1:9",
            "requests_per_hour": 100_000,
            "min_request_gap_seconds": 0,
            # Most tests are about what becomes of each body that a crawl fetches.
            "recrawl": "everything",
            "retry_base_seconds": 0.02,
            "outbox_retry_base_seconds": 0.02,
        }
        return Settings(**(values | changed))

    return make


@pytest.fixture
def marketplace(tmp_path: Path) -> Generator[RunningSimulator]:
    """A simulated marketplace of the test's own, limits wide open."""
    with forked_marketplace(tmp_path / "simulator", seed=7) as running:
        yield running


@pytest.fixture
def product_server(tmp_path: Path) -> Generator[RunningSimulator]:
    """A simulated product server of the test's own."""
    with forked_product_server(tmp_path / "simulator") as running:
        yield running


@pytest.fixture
def market(marketplace: RunningSimulator) -> Generator[MarketplaceControl]:
    """Hands on the simulated marketplace."""
    with MarketplaceControl(marketplace.url) as control:
        yield control


@pytest.fixture
def receiver(product_server: RunningSimulator) -> Generator[ProductServerControl]:
    """Eyes on the simulated product server."""
    with ProductServerControl(product_server.url) as control:
        yield control


@pytest.fixture(scope="session")
def aws_server() -> Generator["SimulatedAws"]:
    """One simulated AWS for all tests of this process: whatever listens, its memory is the process's."""
    # Its libraries take seconds to import, and few tests need them.
    from mustit_pipeline_tests.simulated_aws import simulated_aws

    with simulated_aws() as made:
        yield made


@pytest.fixture
def aws(aws_server: "SimulatedAws", monkeypatch: pytest.MonkeyPatch) -> "SimulatedAws":
    """The same with nothing in it; who we are comes from the usual variables."""
    from mustit_pipeline_tests.simulated_aws import VARIABLES

    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    aws_server.reset()
    return aws_server


@pytest.fixture(scope="session")
def strict_aws_server(aws_server: "SimulatedAws") -> Generator["StrictAws"]:
    """A strict one in front of it, for all tests of this process."""
    from mustit_pipeline_tests.strict_aws import strict_aws

    with strict_aws(aws_server) as made:
        yield made


@pytest.fixture
def strict(strict_aws_server: "StrictAws", monkeypatch: pytest.MonkeyPatch) -> Generator["StrictAws"]:
    """The same with nothing in it; at the end no limit of AWS has been broken."""
    from mustit_pipeline_tests.simulated_aws import VARIABLES

    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    strict_aws_server.reset()
    yield strict_aws_server
    assert strict_aws_server.broken == []
