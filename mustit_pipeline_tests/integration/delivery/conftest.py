"""One product server for a module; every test has its own seller and starts without faults."""

from collections.abc import Callable, Generator
from uuid import uuid4

import pytest

from mustit_pipeline.foundation.database import Database
from mustit_pipeline.settings import Settings
from mustit_pipeline.simulator.control import ProductServerControl
from mustit_pipeline.simulator.process import RunningSimulator, start_product_server
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.integration.catalog.shelf import Shelf


@pytest.fixture(scope="package")
def running_server(tmp_path_factory: pytest.TempPathFactory) -> Generator[RunningSimulator]:
    with start_product_server(state=tmp_path_factory.mktemp("product-server")) as running:
        yield running


@pytest.fixture
def server(running_server: RunningSimulator) -> Generator[ProductServerControl]:
    with ProductServerControl(running_server.url) as control:
        control.clear_faults()
        control.reset_audit()
        yield control
        control.clear_faults()


@pytest.fixture
def settings(make_settings: MakeSettings, running_server: RunningSimulator) -> Settings:
    return make_settings(product_server_url=running_server.url)


@pytest.fixture
def shelf(database: Database) -> Shelf:
    return Shelf(database, f"셀러 {uuid4().hex[:8]}: a/b & 50%")


@pytest.fixture
def effects(server: ProductServerControl, shelf: Shelf) -> Callable[[], list[tuple[int, int, str]]]:
    """What the product server did for this test's seller: item, version and kind, in its order."""

    def look() -> list[tuple[int, int, str]]:
        log = [effect for effect in server.log() if effect.seller_id == shelf.seller_id]
        return [(effect.item_no, effect.version, effect.event_type) for effect in log]

    return look
