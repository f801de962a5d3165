"""An estimate of a crawl's cost, with one request at most; nothing is stored."""

import math
from dataclasses import dataclass
from functools import partial

from mustit_pipeline.agents import roster
from mustit_pipeline.agents.pool import AgentPool
from mustit_pipeline.crawling.fetching import Fetcher, NoAgentFree, RequestCounter
from mustit_pipeline.crawling.pace import at_best
from mustit_pipeline.crawling.planning import expected_tasks, tasks_for, wanted_products
from mustit_pipeline.crawling.recrawl import expected_choices, terms_of
from mustit_pipeline.crawling.sql.choosing import SOURCES, Chooser, Reasons
from mustit_pipeline.crawling.sql.executions import StoredExecution
from mustit_pipeline.crawling.steering import would_join
from mustit_pipeline.domain.errors import Conflict
from mustit_pipeline.domain.recrawl.choosing import Reason
from mustit_pipeline.domain.values import ExecutionId, SellerId
from mustit_pipeline.foundation import event_loop
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database, addresses
from mustit_pipeline.marketplace.client import MarketplaceClient
from mustit_pipeline.marketplace.parsing import parse_count
from mustit_pipeline.settings import Settings
from mustit_pipeline.tallies.sql import tallies
from mustit_pipeline.tallies.sql.tallies import Subject


@dataclass(frozen=True, slots=True)
class Estimate:
    """The requests of a crawl, or those left of the execution it would join, and the shortest time for them."""

    joins: ExecutionId | None
    products: int | None
    requests: int
    agents: int
    seconds: float | None
    # By the recrawl policy, for a crawl that it decides about: why sources are fetched, and how many are not.
    sources: Reasons | None = None
    # Whether the oldest are fetched before the maximum age, only to find out whether they change.
    explores: bool = False


def estimate(
    database: Database, settings: Settings, seller_id: SellerId, *, full: bool = False, limit: int | None = None
) -> Estimate:
    """Estimate a crawl that starts now; raises the errors that the crawl would raise."""
    with database.reading() as connection:
        joined = would_join(connection, seller_id)
    sources, explores = None, False
    if joined is not None and joined.is_planned:
        products, requests = _left_of(database, joined, settings)
    else:
        calls = RequestCounter()
        try:
            count = event_loop.run(_count(database, settings, seller_id, calls))
        finally:
            with database.transaction() as connection:
                tallies.add(connection, Subject.FETCH, calls.durations)
        if joined is not None:
            full, limit = joined.full_refetch, joined.product_limit
        products = wanted_products(count, limit)
        if settings.recrawl == "everything" or full or limit is not None:
            requests = 1 + tasks_for(products, settings.page_size)
        else:
            sources, explores = _chosen(database, settings, seller_id, count)
            requests = 1 + math.ceil(count / settings.page_size) + sum(sources.chosen.values())
    now = utc_now()
    with database.reading() as connection:
        pool = roster.pool_status(connection, settings, now)
        seconds = at_best(connection, settings, pool, requests, now)
    joins = None if joined is None else joined.id
    return Estimate(joins, products, requests, pool.available, seconds, sources, explores)


def _chosen(database: Database, settings: Settings, seller_id: SellerId, count: int) -> tuple[Reasons, bool]:
    """What the recrawl policy would choose now, and whether it explores; listed products that are not known are new."""
    now = utc_now()
    with database.reading() as connection:
        terms = terms_of(connection, settings, seller_id.value, now)
        found = Chooser(connection, seller_id.value, terms, now).reasons()
    unknown = max(0, len(SOURCES) * count - found.sources)
    new = found.chosen.get(Reason.NEW, 0) + unknown
    chosen = Reasons({**found.chosen, **({Reason.NEW: new} if new else {})}, found.sources + unknown)
    return chosen, terms.kept_age < settings.max_age_hours


def _left_of(database: Database, stored: StoredExecution, settings: Settings) -> tuple[int | None, int]:
    """The products of a planned execution (None without a listing), and its remaining requests."""
    execution = stored.execution
    with database.reading() as connection:
        chosen = expected_choices(connection, settings, stored, utc_now())
    left = (
        expected_tasks(stored, settings.page_size, chosen=chosen) - execution.completed_tasks - execution.failed_tasks
    )
    count = stored.listed_count
    return None if count is None else wanted_products(count, stored.product_limit), left


async def _count(database: Database, settings: Settings, seller_id: SellerId, calls: RequestCounter) -> int:
    redis_url = addresses(settings).redis_url
    async with (
        MarketplaceClient(settings) as client,
        AgentPool(settings, database, client, redis_url=redis_url) as pool,
    ):
        fetcher = Fetcher(
            settings,
            client,
            pool,
            deadline=math.inf,
            patience=settings.session_patience_seconds,
            token_patience=settings.session_patience_seconds,
        )
        try:
            fetched = await fetcher.fetch(
                client.endpoints.count(seller_id).value,
                partial(parse_count, most=settings.seller_most_products),
                calls,
            )
        except NoAgentFree as error:
            raise Conflict(
                "CONFLICT_NO_AGENT_FREE",
                korean=f"사용할 수 있는 User-Agent가 없습니다: {error}",
                english=f"No agent is free for the count call ({error}): see `mustit agents status`",
            ) from None
    return fetched.value
