"""What a crawl would cost, asked with a single request and without leaving a trace of a plan."""

import math
from dataclasses import dataclass

from mustit_pipeline import event_loop
from mustit_pipeline.agents import roster
from mustit_pipeline.agents.pool import AgentPool
from mustit_pipeline.clock import utc_now
from mustit_pipeline.crawling.fetching import Fetcher, NoAgentFree, RequestCounter
from mustit_pipeline.domain.errors import Conflict
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.marketplace.client import MarketplaceClient
from mustit_pipeline.marketplace.parsing import parse_listing
from mustit_pipeline.settings import Settings
from mustit_pipeline.store import sellers
from mustit_pipeline.store.database import Database, addresses


@dataclass(frozen=True, slots=True)
class Estimate:
    """How many requests a crawl takes, and how long at best with the agents that are available now."""

    products: int
    requests: int
    agents: int
    seconds: float | None


def estimate(database: Database, settings: Settings, seller_id: SellerId, *, limit: int | None = None) -> Estimate:
    """Ask how many products a registered seller has, and work out the rest."""
    with database.reading() as connection:
        sellers.get(connection, seller_id)
    count = event_loop.run(_count(database, settings, seller_id))
    with database.reading() as connection:
        agents = roster.pool_status(connection, settings, utc_now()).available
    products = count if limit is None else min(count, limit)
    requests = 1 + math.ceil(products / settings.page_size) + 2 * products
    return Estimate(products, requests, agents, seconds_for(settings, requests, agents))


async def _count(database: Database, settings: Settings, seller_id: SellerId) -> int:
    redis_url = addresses(settings).redis_url
    async with (
        MarketplaceClient(settings) as client,
        AgentPool(settings, database, client, redis_url=redis_url) as pool,
    ):
        fetcher = Fetcher(
            client,
            pool,
            deadline=math.inf,
            patience=settings.session_patience_seconds,
            token_patience=settings.session_patience_seconds,
            retry_base_seconds=settings.retry_base_seconds,
            network_tries=settings.network_tries,
            longest_backoff_seconds=settings.network_longest_backoff_seconds,
        )
        try:
            fetched = await fetcher.fetch(client.endpoints.count(seller_id).value, parse_listing, RequestCounter())
        except NoAgentFree as error:
            raise Conflict(
                "CONFLICT_NO_AGENT_FREE",
                korean=f"사용할 수 있는 User-Agent가 없습니다: {error}",
                english=f"No agent is free for the count call ({error}): see `mustit agents status`",
            ) from None
    return fetched.value.count


def seconds_for(settings: Settings, requests: int, agents: int) -> float | None:
    """How long so many requests take at best; None where nobody can send them.

    Bounded by the pause between two requests of an agent at first, and by the window once its budget is used.
    """
    if not agents:
        return None
    at_once = agents * settings.requests_per_hour
    pause = settings.min_request_gap_seconds / agents
    if requests <= at_once:
        return requests * pause
    return max(requests * pause, (requests - at_once) * settings.window_seconds / at_once)
