"""API10 Unsafe consumption of APIs: what the marketplace and the product server say is data, never more."""

import json
from typing import Any

import pytest
from fastapi.testclient import TestClient

from mustit_pipeline.delivery.relay import relay
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.simulator.control import MarketplaceControl, ProductServerControl
from mustit_pipeline.simulator.process import RunningSimulator
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.integration.crawls import crawl

HOSTILE = "<script>alert(1)</script> ' OR 1=1 -- {{7*7}} ${jndi:ldap://x} \u202e%s"


@pytest.fixture
def product(
    admin: TestClient,
    market: MarketplaceControl,
    marketplace: RunningSimulator,
    receiver: ProductServerControl,
    product_server: RunningSimulator,
    make_settings: MakeSettings,
    database: Database,
) -> dict[str, Any]:
    """A product with a hostile name, which the product server refuses with a hostile text."""
    admin.post("/api/v1/sellers", json={"sellerId": "dmont", "name": "x"})
    market.add_seller("dmont", 1)
    [listed] = market.products("dmont")
    market.set_fields("dmont", listed["itemNo"], name=HOSTILE)
    receiver.fault("status", "events", status=400)
    settings = make_settings(base_url=marketplace.url, product_server_url=product_server.url)
    crawl(database, settings, "dmont")
    relay(database, settings)
    return listed


def test_a_hostile_name_and_a_hostile_answer_are_shown_as_text(admin: TestClient, product: dict[str, Any]) -> None:
    shown = admin.get(f"/api/v1/products/{product['itemNo']}")
    assert shown.headers["content-type"] == "application/json"
    assert shown.headers["x-content-type-options"] == "nosniff"
    assert HOSTILE in json.dumps(shown.json(), ensure_ascii=False)
    failed = admin.get("/api/v1/outbox", params={"status": "FAILED"}).json()["content"]
    assert len(failed) == 1
