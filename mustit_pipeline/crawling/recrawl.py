"""The recrawl policy at work: on which terms a crawl spends requests, and what it fetches when its sweep has ended."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from mustit_pipeline.agents.sql import agent_bookings, agents
from mustit_pipeline.crawling.planning import plan_chosen, planned_status
from mustit_pipeline.crawling.sql import budget, recrawl_terms, tasks
from mustit_pipeline.crawling.sql.choosing import SOURCES, Chooser
from mustit_pipeline.crawling.sql.executions import StoredExecution
from mustit_pipeline.crawling.sql.recrawl_terms import PoolTerms
from mustit_pipeline.domain.recrawl.choosing import Terms, promise_rate
from mustit_pipeline.domain.recrawl.outlook import Means, Outlook, fetches_of, moved_age, outlook
from mustit_pipeline.domain.recrawl.pool import LOOK_SHARE, LOWEST_PRICE, moved_price
from mustit_pipeline.domain.states import AgentStatus
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.marketplace.endpoints import Endpoints
from mustit_pipeline.settings import Settings

# How long the pool's terms hold: they move slowly, and judging reads a row of every seller.
JUDGED_FOR = timedelta(minutes=10)
# The least that one crawl may plan at once, in hours of the whole pool; and how soon what waits should be gone.
ALLOWED_HOURS = 2.0
DRAIN_HOURS = 4.0
# The next look may come later than the usual one.
LOOK_MARGIN = 1.5
# The share of a window's requests that is too much to lose.
PLENTY = 0.5


def fetches_everything(settings: Settings, stored: StoredExecution) -> bool:
    """Whether a crawl fetches every product that it sees; one with a limit fetches those within it."""
    return settings.recrawl == "everything" or stored.full_refetch or stored.product_limit is not None


@dataclass(frozen=True, slots=True)
class PoolMeans:
    """The agents of the pool, what they can send in an hour, and the listing pages of due crawls in an hour."""

    agents: int
    requests_per_hour: float
    due_pages: float

    @property
    def for_products(self) -> float:
        """Requests in an hour without those that listing pages take, which are more where many sellers are small."""
        pages = max(LOOK_SHARE * self.requests_per_hour, self.due_pages)
        return max(self.requests_per_hour - pages, LOOK_SHARE * self.requests_per_hour)


def pool_means(connection: Connection, settings: Settings, number: int | None = None, *, due_pages: float) -> PoolMeans:
    """Of the present pool, or of one with so many agents; a suspended agent comes back, a blocked one does not."""
    if number is None:
        number = sum(row.status is not AgentStatus.BLOCKED for row in agents.read_agents(connection))
    # Without any agent there is nothing to choose; but nothing is divided by zero either.
    per_hour = max(number, 1) * settings.requests_per_hour * 3600 / settings.window_seconds
    return PoolMeans(number, per_hour, due_pages)


def means_of(settings: Settings, pool: PoolMeans, look_hours: float, *, max_age: float) -> Means:
    """What the policy's outlook is made from."""
    return Means(
        requests_per_hour=pool.for_products,
        look_hours=look_hours,
        max_age=max_age,
        min_chance=settings.min_change_chance,
    )


def judge_pool(database: Database, settings: Settings, now: datetime) -> None:
    """Judge anew on which terms crawls spend requests, where that was judged long ago."""
    with database.transaction() as connection:
        known = recrawl_terms.read_pool(connection)
        if known is None or now - known.judged_at >= JUDGED_FOR:
            recrawl_terms.store_pool(connection, _judged(connection, settings, known, now))


def _judged(connection: Connection, settings: Settings, known: PoolTerms | None, now: datetime) -> PoolTerms:
    crowd, looks = recrawl_terms.crowd(connection), budget.looks(connection, settings.page_size)
    means = pool_means(connection, settings, due_pages=looks.due_pages_per_hour)
    found = outlook(crowd.groups, means_of(settings, means, crowd.look_hours, max_age=settings.max_age_hours))
    return PoolTerms(
        price=found.price if known is None else _moved(connection, known, means, now),
        kept_age=found.kept_age if known is None else moved_age(known.kept_age, found, _hours_since(known, now)),
        promise_broken=found.promise_broken,
        freshness=found.freshness,
        requests_per_hour=means.for_products,
        needed_per_hour=found.needed,
        sources=sum(group.sources for group in crowd.groups),
        judged_at=now,
    )


def _hours_since(known: PoolTerms, now: datetime) -> float:
    return (now - known.judged_at).total_seconds() / 3600


def _moved(connection: Connection, known: PoolTerms, means: PoolMeans, now: datetime) -> float:
    """The price after what crawls have planned since, and a share of what waits."""
    hours = _hours_since(known, now)
    wanted = known.planned + recrawl_terms.backlog(connection) * hours / DRAIN_HOURS
    return moved_price(known.price, wanted, means.requests_per_hour * hours, hours)


@dataclass(frozen=True, slots=True)
class Spare:
    """Requests of this window that are neither sent nor needed, of all that the pool can send in it."""

    requests: int
    window: int

    @property
    def is_plenty(self) -> bool:
        """Whether they would be lost if only what is worth the price were fetched."""
        return self.requests >= PLENTY * self.window


def terms_of(
    connection: Connection, settings: Settings, seller_id: str, now: datetime, *, spare: Spare | None = None
) -> Terms:
    """The terms of a crawl of this seller that is planned now; of a light one, with the requests that are to spare.

    A seller earns its share of the pool's requests from one look to the next, and no crawl has less than some hours of
    the whole pool. Where much is to spare, that is spent below the price.
    """
    pool = recrawl_terms.read_pool(connection) or _judged(connection, settings, None, now)
    look = recrawl_terms.look_of(connection, seller_id)
    sources = float(len(SOURCES) * look.products)
    share = pool.requests_per_hour * min(1.0, sources / max(pool.sources, 1.0))
    since = look.interval_hours if look.swept_at is None else (now - look.swept_at).total_seconds() / 3600
    earned = max(share * since, pool.requests_per_hour * ALLOWED_HOURS)
    return Terms(
        allowance=math.ceil(earned) if spare is None else min(math.ceil(earned), spare.requests),
        price=LOWEST_PRICE if spare is not None and spare.is_plenty else pool.price,
        kept_age=pool.kept_age,
        promise_broken=pool.promise_broken,
        look_hours=LOOK_MARGIN * look.look_hours,
        promise_rate=promise_rate(sources, pool.kept_age, share),
        min_chance=settings.min_change_chance,
    )


def expected_choices(
    connection: Connection, settings: Settings, stored: StoredExecution, now: datetime
) -> float | None:
    """About how many sources a crawl fetches whose sweep is under way; None where it fetches everything.

    New products, and what the pool's terms fetch of the seller in the hours since it was last looked at.
    """
    if stored.is_swept or stored.listed_count is None or fetches_everything(settings, stored):
        return None
    listed = float(len(SOURCES) * stored.listed_count)
    pool, seller_id = recrawl_terms.read_pool(connection), stored.seller_id.value
    known = budget.profiles(connection, [seller_id], now, settings.page_size)
    look = recrawl_terms.look_of(connection, seller_id)
    if pool is None or not known or look.swept_at is None:
        return listed
    means = Means(
        requests_per_hour=pool.requests_per_hour,
        look_hours=look.look_hours,
        max_age=pool.kept_age,
        min_chance=settings.min_change_chance,
    )
    told = Outlook(pool.kept_age, pool.promise_broken, pool.price, pool.freshness, 0.0, pool.needed_per_hour)
    hours = (now - look.swept_at).total_seconds() / 3600
    new = max(0.0, listed - len(SOURCES) * known[0].products)
    return min(listed, new + fetches_of(known[0].groups, means, told) * hours)


def plan_rest(connection: Connection, settings: Settings, stored: StoredExecution, now: datetime) -> int:
    """Plan what else a crawl fetches, now that its sweep has ended; returns how many tasks it has then.

    What is planned already stays planned once.
    """
    endpoints, home, added = Endpoints.from_settings(settings), stored.home, 0
    for chosen in _chooser(connection, settings, stored, now).choose(home.execution_id):
        added += tasks.add(connection, home, plan_chosen(endpoints, chosen), planned_status(settings))
    return stored.planned_tasks + added


def plan_signalled(
    connection: Connection, settings: Settings, stored: StoredExecution, item_nos: Sequence[int], now: datetime
) -> None:
    """Plan those of these products, whose listing entry has changed, that are fetched while the sweep goes on."""
    chooser = _chooser(connection, settings, stored, now, planned=stored.remaining_tasks)
    planned = plan_chosen(Endpoints.from_settings(settings), chooser.choose_at_once(item_nos))
    tasks.add(connection, stored.home, planned, planned_status(settings))


def _chooser(
    connection: Connection, settings: Settings, stored: StoredExecution, now: datetime, *, planned: int = 0
) -> Chooser:
    """The choice for an open crawl; a light one has what is to spare beside so many requests that it will make."""
    seller_id = stored.home.seller_id
    if not stored.is_light:
        return Chooser(connection, seller_id, terms_of(connection, settings, seller_id, now), now)
    spare = spare_requests(connection, settings, now)
    left = Spare(max(0, spare.requests - planned), spare.window)
    terms = terms_of(connection, settings, seller_id, now, spare=left)
    # Light crawls are many: what failed is tried again by the next one that is due.
    return Chooser(connection, seller_id, terms, now, failed_before=now - recrawl_terms.FAILED_FOR)


def spare_requests(connection: Connection, settings: Settings, now: datetime) -> Spare:
    """The requests that no seller needs that is due or becomes due within the window."""
    window = timedelta(seconds=settings.window_seconds)
    available = sum(row.status is AgentStatus.AVAILABLE for row in agents.read_agents(connection))
    used, _ = agent_bookings.in_window(connection, settings.window_seconds)
    needed = recrawl_terms.due_requests(connection, by=now + window, page_size=settings.page_size)
    whole = available * settings.requests_per_hour
    return Spare(max(0, whole - used - needed), whole)
