"""One PostgreSQL for these tests; each test starts with an empty pool and its own Redis."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mustit_pipeline.foundation.database import Database
from mustit_pipeline_tests.integration.agents.servers import RedisServer, empty_pool, migrated_database


@pytest.fixture(scope="package")
def pool_database() -> Iterator[Database]:
    with migrated_database() as database:
        yield database


@pytest.fixture
def database(pool_database: Database) -> Database:
    empty_pool(pool_database, agents=6)
    return pool_database


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path) as server:
        yield server
