"""What tests of crawls share."""

from collections.abc import Generator

import pytest

from mustit_pipeline.clock import utc_now
from mustit_pipeline.crawling.crawl import Crawl
from mustit_pipeline.crawling.executions import open_or_join
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.simulator.control import MarketplaceControl
from mustit_pipeline.simulator.process import RunningSimulator
from mustit_pipeline.store.database import Database
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.integration.crawling.drifting import DriftingMarketplace, drifting_marketplace
from mustit_pipeline_tests.integration.crawling.sites import Site
from mustit_pipeline_tests.integration.crawls import register


@pytest.fixture
def drifting() -> Generator[DriftingMarketplace]:
    with drifting_marketplace() as running:
        yield running


@pytest.fixture
def site(
    database: Database, make_settings: MakeSettings, marketplace: RunningSimulator, market: MarketplaceControl
) -> Site:
    settings = make_settings(base_url=marketplace.url, max_concurrent_requests=10)
    market.add_seller("s", 40)
    register(database, "s")
    work = Crawl(database, settings, open_or_join(database, SellerId("s"), triggered_by="test", now=utc_now()).stored)
    work.sweep(30)
    market.reset_audit()
    return Site(database, market, work)
