"""What a crawl would cost, asked with a single request and without leaving a trace of a plan."""

import math
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from mustit_pipeline import event_loop
from mustit_pipeline.agents import roster
from mustit_pipeline.agents.pool import AgentPool
from mustit_pipeline.agents.roster import PoolStatus
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
        pool = roster.pool_status(connection, settings, utc_now())
    products = count if limit is None else min(count, limit)
    requests = 1 + math.ceil(products / settings.page_size) + 2 * products
    return Estimate(products, requests, pool.available, seconds_for(settings, pool, requests, utc_now()))


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
            fetched = await fetcher.fetch(
                client.endpoints.count(seller_id).value,
                partial(parse_listing, most=settings.seller_most_products),
                RequestCounter(),
            )
        except NoAgentFree as error:
            raise Conflict(
                "CONFLICT_NO_AGENT_FREE",
                korean=f"사용할 수 있는 User-Agent가 없습니다: {error}",
                english=f"No agent is free for the count call ({error}): see `mustit agents status`",
            ) from None
    return fetched.value.count


def seconds_for(settings: Settings, pool: PoolStatus, requests: int, now: datetime) -> float | None:
    """How long so many more requests take at best; None where nobody can send them.

    Bounded by the pause between two requests of an agent while the window's budget lasts, and then by the window.
    """
    if not pool.available:
        return None
    budget = pool.available * settings.requests_per_hour
    pause = settings.min_request_gap_seconds / pool.available
    left = max(0, budget - pool.used_in_window)
    if requests <= left:
        return requests * pause
    # Whoever has used up everything waits for the first slot that comes free, and otherwise for a whole window.
    first = settings.window_seconds
    if not left and pool.next_free_at is not None:
        first = min(first, max(0.0, (pool.next_free_at - now).total_seconds()))
    windows, last = divmod(requests - left - 1, budget)
    return first + windows * settings.window_seconds + (last + 1) * pause
