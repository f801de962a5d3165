"""The marketplace's address changes while a crawl is under way: what was planned is asked for at the new one."""

import asyncio
from pathlib import Path

import pytest

from mustit_pipeline.agents.pool import AgentPool
from mustit_pipeline.crawling.crawl import Crawl
from mustit_pipeline.crawling.fetching import Fetcher, RequestCounter
from mustit_pipeline.crawling.steering import open_or_join
from mustit_pipeline.domain.states import ExecutionStatus
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.foundation.failures import ForbiddenHost
from mustit_pipeline.marketplace.client import MarketplaceClient
from mustit_pipeline.simulator.control import MarketplaceControl
from mustit_pipeline.simulator.process import RunningSimulator, start_marketplace
from mustit_pipeline_tests.conftest import MakeSettings, free_port
from mustit_pipeline_tests.integration.crawling.checks import check_outcomes, number
from mustit_pipeline_tests.integration.crawls import crawl, register


def test_a_crawl_that_was_swept_at_one_address_is_finished_at_another(
    database: Database, make_settings: MakeSettings, tmp_path: Path
) -> None:
    """Every task that was left failed for ever, because it named a host that was not allowed any more."""
    world = {"state": tmp_path / "simulator", "requests_per_window": 1_000_000, "min_gap_seconds": 0}
    register(database, "s")
    with start_marketplace(**world, sellers={"s": 40}) as first:
        settings = make_settings(base_url=first.url, page_size=10)
        opened = open_or_join(database, SellerId("s"), triggered_by="test", now=utc_now())
        Crawl(database, settings, opened.stored).sweep(60)
    with start_marketplace(**world, port=free_port()) as second, MarketplaceControl(second.url) as market:
        assert second.url != first.url

        stored = crawl(database, make_settings(base_url=second.url, page_size=10), "s").stored

        asked = sum(times for url, times in market.requested_urls().items() if "mustit-api" in url)
    assert (stored.execution.id, stored.execution.status) == (opened.stored.execution.id, ExecutionStatus.COMPLETED)
    rows = check_outcomes(database, stored.execution.id)
    assert {(row.status, row.retry_count) for row in rows.values()} == {("COMPLETED", 0)}
    assert asked == 2 * 40


def test_a_call_that_another_host_would_get_is_not_sent_not_counted_and_no_agents_fault(
    database: Database, make_settings: MakeSettings, marketplace: RunningSimulator
) -> None:
    settings, calls = make_settings(base_url=marketplace.url), RequestCounter()

    async def ask() -> None:
        async with (
            MarketplaceClient(settings) as client,
            AgentPool(settings, database, client, redis_url=None) as pool,
        ):
            fetcher = Fetcher(settings, client, pool, deadline=asyncio.get_running_loop().time() + 20)
            await fetcher.fetch("http://127.0.0.1:9/mustit-api", bytes, calls)

    with pytest.raises(ForbiddenHost):
        asyncio.run(ask())

    assert calls.requests == 0
    assert number(database, "SELECT min(health) FROM user_agents") == 100
    assert number(database, "SELECT count(*) FROM agent_bookings") == 0
