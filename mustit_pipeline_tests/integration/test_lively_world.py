"""The world that goes on by itself, on real simulated servers."""

from collections.abc import Generator
from uuid import uuid4

import httpx
import pytest
from sqlalchemy import text

from mustit_pipeline.cli.lively_world import LivelyWorld, lively_world
from mustit_pipeline.cli.world import World
from mustit_pipeline.crawling.steering import deactivate_seller
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.simulator.control import MarketplaceControl, ProductServerControl
from mustit_pipeline.simulator.process import RunningSimulator
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.integration.crawls import register

SELLERS = {"dmont": 20, "bag & shoes/50%": 10}
LOSER = "dmont"


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def life(
    marketplace: RunningSimulator,
    product_server: RunningSimulator,
    market: MarketplaceControl,
    database: Database,
    make_settings: MakeSettings,
    said: list[str],
) -> Generator[LivelyWorld]:
    for seller_id, products in SELLERS.items():
        market.add_seller(seller_id, products)
    register(database, *SELLERS)
    world = World(make_settings(), marketplace, product_server)
    with lively_world(world, database, SELLERS, said.append) as made:
        assert made is not None
        yield made


def numbers(market: MarketplaceControl, seller_id: str) -> set[int]:
    return {product["itemNo"] for product in market.products(seller_id)}


def delete(url: str, seller_id: str, item_no: int) -> None:
    """What the product server is told after an approved deletion."""
    event = {
        "eventId": str(uuid4()),
        "eventType": "PRODUCT_DELETED",
        "sellerId": seller_id,
        "itemNo": item_no,
        "version": 2,
        "occurredAt": utc_now().isoformat(),
        "changes": [],
        "productData": None,
    }
    headers = {"Idempotency-Key": f"{seller_id}:{item_no}:2"}
    answer = httpx.post(f"{url}/api/v1/product-events", json=event, headers=headers, trust_env=False)
    assert answer.is_success, answer.text


def opened(database: Database) -> list[tuple[str, str]]:
    with database.reading() as connection:
        rows = connection.execute(text("SELECT seller_id, triggered_by FROM crawling_schedule_executions")).all()
    return sorted((row.seller_id, row.triggered_by) for row in rows)


def test_five_minutes_bring_changes_crawls_a_loss_and_faults_that_end(
    life: LivelyWorld,
    market: MarketplaceControl,
    receiver: ProductServerControl,
    product_server: RunningSimulator,
    database: Database,
    said: list[str],
) -> None:
    deactivate_seller(database, SellerId("bag & shoes/50%"), utc_now())
    before = {product["itemNo"]: product for product in market.products(LOSER)}
    life.go_on(85)
    assert opened(database) == []
    on_sale = {product["itemNo"]: product for product in market.products(LOSER)}
    assert any(on_sale[item] != before[item] for item in on_sale.keys() & before.keys())

    life.go_on(95)
    lost = on_sale.keys() - numbers(market, LOSER)
    assert len(lost) > 0.2 * len(on_sale)

    life.go_on(230)
    # One crawl is joined, not opened again, and the INACTIVE seller has none.
    assert opened(database) == [(LOSER, "demo")]
    assert receiver.faults() == []
    assert [(one["kind"], one["count"]) for one in market.faults()] == [("429", 2)]

    gone = min(lost)
    delete(product_server.url, LOSER, gone)
    life.go_on(721)
    assert numbers(market, LOSER) & lost == lost - {gone}
    assert market.sellers()[LOSER] >= SELLERS[LOSER]
    assert said == []


def test_the_product_server_fails_for_a_while(life: LivelyWorld, receiver: ProductServerControl) -> None:
    life.go_on(121)
    [fault] = receiver.faults()
    assert (fault["kind"], fault["endpoint"], fault["status"]) == ("status", "events", 500)

    life.go_on(211)
    assert receiver.faults() == []


def test_a_simulator_that_is_gone_is_skipped_and_said_once(
    life: LivelyWorld, marketplace: RunningSimulator, market: MarketplaceControl, said: list[str]
) -> None:
    marketplace.stop()
    for elapsed in (21, 41, 61):
        life.go_on(elapsed)
    assert sum("(change)" in text for text in said) == 1

    marketplace.restart()
    before = market.products(LOSER)
    life.go_on(121)
    assert market.products(LOSER) != before


@pytest.mark.parametrize("real", ["marketplace", "product server", "none, but it is calm"])
def test_a_calm_or_real_world_is_left_alone(
    real: str,
    marketplace: RunningSimulator,
    product_server: RunningSimulator,
    database: Database,
    make_settings: MakeSettings,
) -> None:
    world = World(
        make_settings(demo="calm" if "calm" in real else "lively"),
        None if real == "marketplace" else marketplace,
        None if real == "product server" else product_server,
    )
    with lively_world(world, database, SELLERS, print) as life:
        assert life is None
