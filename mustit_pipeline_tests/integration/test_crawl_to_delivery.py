"""The whole walk of the data: marketplace, crawl, catalog, outbox, product server."""

from mustit_pipeline.delivery.relay import relay
from mustit_pipeline.domain.states import ExecutionStatus, LifeCycle, SweepStatus
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.simulator.control import MarketplaceControl, ProductServerControl
from mustit_pipeline.simulator.process import RunningSimulator
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.integration.crawls import crawl, differences, register

SELLER = "한글 & a/b 50%"


def test_the_product_server_ends_equal_to_the_marketplace_field_by_field(
    database: Database,
    make_settings: MakeSettings,
    marketplace: RunningSimulator,
    product_server: RunningSimulator,
    market: MarketplaceControl,
    receiver: ProductServerControl,
) -> None:
    settings = make_settings(base_url=marketplace.url, product_server_url=product_server.url, page_size=20)
    market.add_seller(SELLER, 45)
    register(database, SELLER)

    first = crawl(database, settings, SELLER)

    assert first.stored.execution.status is ExecutionStatus.COMPLETED
    assert first.stored.sweep_status is SweepStatus.COMPLETE
    assert first.stored.execution.total_tasks == 3 + 2 * 45
    assert first.stored.requests == 1 + 3 + 2 * 45
    assert first.report.versions == {LifeCycle.CREATED: 45}
    assert relay(database, settings).sent == 45
    assert differences(market, receiver, SELLER) == {}

    again = crawl(database, settings, SELLER)

    assert again.report.versions == {}
    assert relay(database, settings).sent == 0

    changed = market.random_changes(SELLER, 18)
    added = market.add_products(SELLER, 2)
    later = crawl(database, settings, SELLER)

    assert later.report.versions == {LifeCycle.UPDATED: len(changed), LifeCycle.CREATED: len(added)}
    assert relay(database, settings).sent == len(changed) + len(added)
    assert differences(market, receiver, SELLER) == {}
