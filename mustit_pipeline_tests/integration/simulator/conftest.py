"""Real server processes for these tests, each stopped at its end."""

from collections.abc import Iterator

import pytest

from mustit_pipeline.simulator.control import MarketplaceControl, ProductServerControl
from mustit_pipeline.simulator.process import RunningSimulator, start_marketplace, start_product_server
from mustit_pipeline_tests.integration.simulator.visitor import Visitor

NO_LIMIT = 1_000_000


@pytest.fixture(scope="module")
def marketplace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSimulator]:
    """A marketplace without limits, shared by a module whose tests each use a seller of their own."""
    state = tmp_path_factory.mktemp("marketplace")
    with start_marketplace(state=state, seed=7, requests_per_window=NO_LIMIT, min_gap_seconds=0) as running:
        yield running


@pytest.fixture
def control(marketplace: RunningSimulator) -> Iterator[MarketplaceControl]:
    with MarketplaceControl(marketplace.url) as client:
        yield client
        client.clear_faults()
        client.settings(
            requestsPerWindow=NO_LIMIT,
            windowSeconds=3600,
            minGapSeconds=0,
            gapToleranceSeconds=0.05,
            latencyMs=0,
            firstPageNo=0,
            noise=True,
            tokenSeconds=7200,
            tokenCookie="max-age",
        )


@pytest.fixture
def visitor(marketplace: RunningSimulator, request: pytest.FixtureRequest) -> Iterator[Visitor]:
    """Another agent for each test, so that no test sees another one's requests."""
    with Visitor(marketplace.url, f"visitor/{request.node.name}") as visitor:
        yield visitor


@pytest.fixture(scope="module")
def product_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSimulator]:
    """A product server, shared by a module whose tests each send as a seller of their own."""
    with start_product_server(state=tmp_path_factory.mktemp("product-server")) as running:
        yield running


@pytest.fixture
def server_control(product_server: RunningSimulator) -> Iterator[ProductServerControl]:
    with ProductServerControl(product_server.url) as client:
        client.reset_audit()
        yield client
        client.clear_faults()
