"""Requests whose answer never came: the marketplace may count them later than we gave up, and no window overflows."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from mustit_pipeline.agents import rules
from mustit_pipeline.agents.pool import AgentPool, Booking, Outcome, WaitReason
from mustit_pipeline.crawling.fetching import Fetcher, RequestCounter
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.foundation.failures import NetworkFailure
from mustit_pipeline.marketplace.client import MarketplaceClient
from mustit_pipeline.simulator.control import MarketplaceControl
from mustit_pipeline.simulator.process import RunningSimulator, start_marketplace
from mustit_pipeline_tests.integration.agents.servers import RedisServer, empty_pool, settings_of
from mustit_pipeline_tests.integration.agents.visits import booking_of, rows, run, wait_of

WINDOW, READ_TIMEOUT, TOTAL_TIMEOUT, DELIVERY = 2.0, 0.3, 0.5, 2.0
LATE = 1.7


@pytest.fixture(autouse=True)
def short_delivery(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real five seconds would only make the tests longer."""
    monkeypatch.setattr(rules, "DELIVERY_SECONDS", DELIVERY)


@pytest.fixture
def marketplace(tmp_path: Path) -> Iterator[RunningSimulator]:
    with start_marketplace(
        state=tmp_path / "simulator", seed=7, requests_per_window=3, window_seconds=WINDOW, min_gap_seconds=0
    ) as running:
        yield running


@pytest.fixture(params=["redis", "postgres"])
def redis_url(request: pytest.FixtureRequest, redis_server: RedisServer) -> str | None:
    return redis_server.url if request.param == "redis" else None


@asynccontextmanager
async def fetching(
    home: Path, database: Database, marketplace: RunningSimulator, redis_url: str | None
) -> AsyncIterator[tuple[AgentPool, Fetcher, str]]:
    settings = settings_of(
        home=home,
        base_url=marketplace.url,
        requests_per_hour=3,
        window_seconds=WINDOW,
        min_request_gap_seconds=0,
        read_timeout_seconds=READ_TIMEOUT,
        total_timeout_seconds=TOTAL_TIMEOUT,
        retry_base_seconds=0.01,
        network_tries=1,
        throttled_tries=3,
    )
    async with (
        MarketplaceClient(settings) as client,
        AgentPool(settings, database, client, redis_url=redis_url) as pool,
    ):
        end = asyncio.get_running_loop().time() + 20.0
        fetcher = Fetcher(settings, client, pool, deadline=end)
        yield pool, fetcher, client.endpoints.count(SellerId("shop")).value


def test_a_request_that_is_counted_after_we_gave_up_lets_no_window_overflow(
    database: Database,
    tmp_path: Path,
    marketplace: RunningSimulator,
    market: MarketplaceControl,
    redis_url: str | None,
) -> None:
    empty_pool(database, 1)
    market.fault("late", "api", count=1, seconds=LATE)

    async def scenario() -> None:
        async with fetching(tmp_path, database, marketplace, redis_url) as (_, fetcher, url):
            end = time.monotonic() + 5.0
            while time.monotonic() < end:
                with suppress(NetworkFailure):
                    await fetcher.fetch(url, bytes, RequestCounter())

    run(scenario)
    audit = market.audit()
    assert audit["faults"] == {"late": 1}
    assert audit["requests"] >= 6
    assert (audit["maxInWindow"], audit["limit429"]) == (3, 0)


@pytest.mark.parametrize(
    ("fault", "health"), [("late", 95), ("reset", 95), ("cancelled", 100)], ids=["timeout", "broken", "cancelled"]
)
def test_an_agent_whose_request_may_still_arrive_is_not_used_until_it_cannot(
    database: Database,
    tmp_path: Path,
    marketplace: RunningSimulator,
    market: MarketplaceControl,
    redis_url: str | None,
    fault: str,
    health: int,
) -> None:
    empty_pool(database, 1)
    market.fault("slow" if fault == "cancelled" else fault, "api", count=1, seconds=LATE)

    async def scenario() -> None:
        async with fetching(tmp_path, database, marketplace, redis_url) as (pool, fetcher, url):
            await pool.settle(await booking_of(pool), Outcome.NOT_SENT)
            booked = time.monotonic()
            under_way = asyncio.create_task(fetcher.fetch(url, bytes, RequestCounter()))
            if fault == "cancelled":
                await asyncio.sleep(0.1)
                under_way.cancel()
            with suppress(NetworkFailure, asyncio.CancelledError):
                await under_way
            waiting = await wait_of(pool, WaitReason.LIMIT)
            passed = time.monotonic() - booked
            assert passed + waiting.seconds == pytest.approx(TOTAL_TIMEOUT + DELIVERY, abs=0.15)

    run(scenario)
    assert rows(database)["agent-000"].health == health


def test_an_answer_that_broke_off_was_counted_and_holds_no_other_up(
    database: Database, tmp_path: Path, marketplace: RunningSimulator, market: MarketplaceControl
) -> None:
    empty_pool(database, 1)
    market.fault("cut", "api", count=1)

    async def scenario() -> None:
        async with fetching(tmp_path, database, marketplace, None) as (pool, fetcher, url):
            with pytest.raises(NetworkFailure):
                await fetcher.fetch(url, bytes, RequestCounter())
            assert isinstance(await pool.acquire(), Booking)

    run(scenario)
    assert rows(database)["agent-000"].health == 95
