"""What tests of crawls share."""

from collections.abc import Callable, Generator

import pytest

from mustit_pipeline.crawling.crawl import Crawl
from mustit_pipeline.crawling.steering import open_or_join
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.settings import Settings
from mustit_pipeline.simulator.control import MarketplaceControl
from mustit_pipeline.simulator.process import RunningSimulator
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.integration.crawling.drifting import DriftingMarketplace, drifting_marketplace
from mustit_pipeline_tests.integration.crawling.sites import Site
from mustit_pipeline_tests.integration.crawls import register

Stock = Callable[..., Settings]


@pytest.fixture
def drifting() -> Generator[DriftingMarketplace]:
    with drifting_marketplace() as running:
        yield running


@pytest.fixture
def stock(
    database: Database, make_settings: MakeSettings, marketplace: RunningSimulator, market: MarketplaceControl
) -> Stock:
    """Register the seller `s` with products in the marketplace; gives the settings that it is crawled with."""

    def add(products: int, **settings: object) -> Settings:
        market.add_seller("s", products)
        register(database, "s")
        return make_settings(base_url=marketplace.url, **settings)

    return add


@pytest.fixture
def site(database: Database, market: MarketplaceControl, stock: Stock) -> Site:
    settings = stock(40, max_concurrent_requests=10)
    work = Crawl(database, settings, open_or_join(database, SellerId("s"), triggered_by="test", now=utc_now()).stored)
    work.sweep(30)
    market.reset_audit()
    return Site(database, market, work)
