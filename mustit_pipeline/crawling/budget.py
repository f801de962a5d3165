"""What the pool's requests buy: what they keep, what the next days cost, and what would keep the promise."""

import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from sqlalchemy import Connection

from mustit_pipeline.agents.sql import agents
from mustit_pipeline.crawling.recrawl import PoolMeans, means_of, pool_means
from mustit_pipeline.crawling.sql import budget as numbers
from mustit_pipeline.crawling.sql import recrawl_terms
from mustit_pipeline.crawling.sql.budget import OldSeller
from mustit_pipeline.domain.recrawl import LOOK_SHARE, outlook
from mustit_pipeline.settings import Settings

SEOUL = ZoneInfo("Asia/Seoul")
DAY_HOURS = 24.0
OLDEST_SELLERS = 10


@dataclass(frozen=True, slots=True)
class Budget:
    """Requests of a day, and what they come to. Ages are hours, freshness is a share of all sources."""

    agents: int
    capacity_per_day: int
    used_today: int
    left_today: int
    products: int
    max_age: float
    # The age that can be kept; the promise, or more where that is broken.
    kept_age: float
    expected_freshness: float
    oldest_age: float | None
    # Expected requests of a day, with listing pages, and those that the promise alone takes.
    cost_per_day: int
    promise_per_day: int
    # Agents that would keep the promise.
    agents_needed: int
    requests_per_change: float | None
    sellers: tuple[OldSeller, ...]

    @property
    def promise_kept(self) -> bool:
        """Whether these requests are enough for the promise, and no source is older than it."""
        return self.affords_promise and (self.oldest_age is None or self.oldest_age <= self.max_age)

    @property
    def affords_promise(self) -> bool:
        """Whether the pool has as many requests as the promise takes."""
        return self.agents_needed <= self.agents


def view(
    connection: Connection,
    settings: Settings,
    now: datetime,
    *,
    days: float = 7.0,
    agents_instead: int | None = None,
    max_age_instead: float | None = None,
) -> Budget:
    """The budget as it is, or as it would be with another number of agents or another maximum age.

    Requests per change found are those of the last `days`.
    """
    crowd, means = recrawl_terms.crowd(connection), pool_means(connection, settings, agents_instead)
    max_age = settings.max_age_hours if max_age_instead is None else max_age_instead
    found = outlook(crowd.groups, means_of(settings, means, crowd.look_hours, max_age=max_age))
    sources = sum(group.sources for group in crowd.groups)
    promise_per_hour = sources / max_age
    per_agent = means.for_products / max(means.agents, 1)
    spent = numbers.spent(connection, now - timedelta(days=days))
    oldest = numbers.oldest(connection, now, OLDEST_SELLERS)
    used = agents.requests_today(connection, now)
    return Budget(
        agents=means.agents,
        capacity_per_day=_capacity(means, DAY_HOURS),
        used_today=used,
        left_today=max(0, min(_capacity(means, _hours_left(now)), _capacity(means, DAY_HOURS) - used)),
        products=crowd.products,
        max_age=max_age,
        kept_age=max(found.kept_age, max_age),
        expected_freshness=found.freshness,
        oldest_age=oldest[0].oldest_hours if oldest else None,
        cost_per_day=math.ceil(found.per_hour * DAY_HOURS / (1 - LOOK_SHARE)),
        promise_per_day=math.ceil(promise_per_hour * DAY_HOURS),
        agents_needed=math.ceil(promise_per_hour / per_agent) if sources else 0,
        requests_per_change=spent.requests / spent.changes if spent.changes else None,
        sellers=tuple(oldest),
    )


def _capacity(means: PoolMeans, hours: float) -> int:
    return int(means.requests_per_hour * hours) if means.agents else 0


def _hours_left(now: datetime) -> float:
    """Until midnight in Seoul."""
    local = now.astimezone(SEOUL)
    midnight = datetime.combine(local.date() + timedelta(days=1), datetime.min.time(), SEOUL)
    return (midnight - local).total_seconds() / 3600
