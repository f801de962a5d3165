"""One marketplace for all tests of the catalog; every test has a seller of its own and starts without faults."""

from collections.abc import Generator

import pytest

from mustit_pipeline.foundation.database import Database
from mustit_pipeline.simulator.control import MarketplaceControl
from mustit_pipeline.simulator.process import RunningSimulator, start_marketplace
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.integration.catalog.guarded import Guarded


@pytest.fixture(scope="package")
def running_market(tmp_path_factory: pytest.TempPathFactory) -> Generator[RunningSimulator]:
    state = tmp_path_factory.mktemp("marketplace")
    with start_marketplace(state=state, seed=7, requests_per_window=1_000_000, min_gap_seconds=0) as running:
        yield running


@pytest.fixture
def shop(running_market: RunningSimulator) -> Generator[MarketplaceControl]:
    with MarketplaceControl(running_market.url) as control:
        yield control
        control.clear_faults()


@pytest.fixture
def guarded(
    database: Database, make_settings: MakeSettings, running_market: RunningSimulator, shop: MarketplaceControl
) -> Guarded:
    settings = make_settings(base_url=running_market.url, page_size=5, task_max_retries=0, max_concurrent_requests=10)
    return Guarded(database, settings, shop)
