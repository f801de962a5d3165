"""What tests of crawls share."""

from collections.abc import Generator

import pytest

from mustit_pipeline_tests.integration.crawling.drifting import DriftingMarketplace, drifting_marketplace


@pytest.fixture
def drifting() -> Generator[DriftingMarketplace]:
    with drifting_marketplace() as running:
        yield running
