"""One crowded database for all tests of plans."""

from collections.abc import Generator

import pytest
from sqlalchemy import make_url

from mustit_pipeline.foundation.database import Database, make_engine
from mustit_pipeline_tests.conftest import TestServers
from mustit_pipeline_tests.databases import TestDatabases
from mustit_pipeline_tests.integration.plans.crowd import fill


@pytest.fixture(scope="package")
def crowded(test_servers: TestServers, test_databases: TestDatabases) -> Generator[Database]:
    name = test_databases.take(untouched=True)
    database = Database(make_engine(make_url(test_servers.servers.database_url).set(database=name)))
    fill(database)
    yield database
    database.close()
    test_databases.give_back(name)
