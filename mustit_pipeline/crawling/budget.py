"""What the pool's requests buy: what they keep, what the next days cost, and what would keep the promise."""

import math
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo

from sqlalchemy import Connection

from mustit_pipeline.agents.sql import agents
from mustit_pipeline.crawling.recrawl import PoolMeans, means_of, pool_means
from mustit_pipeline.crawling.sql import budget as numbers
from mustit_pipeline.crawling.sql import recrawl_terms
from mustit_pipeline.crawling.sql.budget import AnotherInterval, Looks, SellerProfile
from mustit_pipeline.crawling.sql.choosing import SOURCES
from mustit_pipeline.crawling.sql.recrawl_terms import RATE_STEPS, Crowd
from mustit_pipeline.domain.recrawl.outlook import (
    Means,
    Outlook,
    fetches_of,
    freshness_by_interval,
    freshness_of,
    outlook,
)
from mustit_pipeline.domain.recrawl.pool import LOOK_SHARE
from mustit_pipeline.domain.states import ChangeType
from mustit_pipeline.domain.values import CrawlingInterval
from mustit_pipeline.settings import Settings
from mustit_pipeline.tallies.sql import tallies
from mustit_pipeline.tallies.sql.tallies import Subject

SEOUL = ZoneInfo("Asia/Seoul")
DAY_HOURS = 24.0
SHOWN_SELLERS, MOST_SELLERS = 10, 100
LONGEST_INTERVAL_HOURS = 30 * DAY_HOURS
_TYPES = frozenset(kind.value for kind in ChangeType)


class SellerOrder(StrEnum):
    """Which sellers are told first."""

    FRESHNESS = "freshness"
    AGE = "age"


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """Another pool, promise or interval than the present one."""

    agents: int | None = None
    max_age: float | None = None
    interval: CrawlingInterval | None = None


AS_IT_IS = WhatIf()


@dataclass(frozen=True, slots=True)
class SellerFreshness:
    """What a seller may expect; without an age nothing of it was fetched yet."""

    seller_id: str
    products: int
    oldest_age: float | None
    look_hours: float
    interval_hours: float
    expected_freshness: float
    cost_per_day: int


@dataclass(frozen=True, slots=True)
class Remedies:
    """What would keep the promise, each by itself: agents in all, products in all, the interval of all sellers,
    another promise.

    Without an interval no longer one would be enough.
    """

    agents: int
    products: int
    interval_hours: int | None
    max_age: float


@dataclass(frozen=True, slots=True)
class Budget:
    """Requests of a day, and what they come to. Ages are hours, freshness is a share of all sources."""

    # Whether an age is promised; otherwise every due crawl fetches everything, and the promise is each interval.
    promises_age: bool
    agents: int
    capacity_per_day: int
    used_today: int
    left_today: int
    # Of this window, for sellers that are due in it: light crawls leave so many.
    reserved: int
    products: int
    max_age: float
    # The age that can be kept; the promise, or more where that is broken.
    kept_age: float
    expected_freshness: float
    oldest_age: float | None
    # Expected requests of a day, the listing pages among them, and those that the promise alone takes.
    cost_per_day: int
    listing_per_day: int
    promise_per_day: int
    remedies: Remedies
    requests_per_change: float | None
    # The first of all sellers with products, in the order that was asked for.
    sellers: tuple[SellerFreshness, ...]
    sellers_in_all: int

    @property
    def promise_kept(self) -> bool:
        """Whether these requests are enough for the promise, and no source is older than promised."""
        too_old = self.promises_age and self.oldest_age is not None and self.oldest_age > self.max_age
        return self.affords_promise and not too_old

    @property
    def affords_promise(self) -> bool:
        """Whether the pool has as many requests as the promise takes."""
        return self.remedies.agents <= self.agents


def view(
    connection: Connection,
    settings: Settings,
    now: datetime,
    *,
    days: float = 7.0,
    what_if: WhatIf = AS_IT_IS,
    order: SellerOrder = SellerOrder.AGE,
    most: int = SHOWN_SELLERS,
    only: str | None = None,
) -> Budget:
    """The budget as it is, or as it would be; with the first sellers in an order, or with one of them.

    Requests per change found are those of the last `days`. Another interval would be that of the one seller.
    """
    interval = what_if.interval
    instead = None if interval is None else AnotherInterval(interval.timedelta / timedelta(hours=1), only)
    looks = numbers.looks(connection, settings.page_size, instead)
    means = pool_means(connection, settings, what_if.agents, due_pages=looks.due_pages_per_hour)
    crowd = recrawl_terms.crowd(connection)
    adaptive = settings.recrawl == "adaptive" or what_if.max_age is not None
    told = _adaptive(settings, crowd, looks, means, what_if) if adaptive else _everything(crowd, looks, means)
    oldest = numbers.oldest(connection, most)
    if only is not None:
        first: tuple[str, ...] = (only,)
    elif order is SellerOrder.AGE:
        first = oldest.seller_ids
    else:
        first = _least_fresh(connection, told, most, instead)
    wanted = list(dict.fromkeys([*oldest.seller_ids[:1], *first]))
    found = numbers.profiles(connection, wanted, now, settings.page_size, instead)
    by_id = {profile.seller_id: _seller(profile, told) for profile in found}
    shown = [by_id[seller_id] for seller_id in first if seller_id in by_id]
    if order is SellerOrder.FRESHNESS:
        shown.sort(key=lambda one: (one.expected_freshness, one.seller_id))
    since = now - timedelta(days=days)
    spent, changes = numbers.spent(connection, since), _changes_found(connection, since, now)
    used = agents.requests_today(connection, now)
    window_hours = settings.window_seconds / 3600
    due = recrawl_terms.due_requests(connection, by=now + timedelta(hours=window_hours), page_size=settings.page_size)
    return Budget(
        promises_age=adaptive,
        agents=means.agents,
        capacity_per_day=_capacity(means, DAY_HOURS),
        used_today=used,
        left_today=max(0, min(_capacity(means, _hours_left(now)), _capacity(means, DAY_HOURS) - used)),
        reserved=min(due, _capacity(means, window_hours)),
        products=crowd.products,
        max_age=told.max_age,
        kept_age=told.kept_age,
        expected_freshness=told.freshness,
        oldest_age=next((by_id[one].oldest_age for one in oldest.seller_ids[:1]), None),
        cost_per_day=math.ceil((told.for_products + told.for_listings) * DAY_HOURS),
        listing_per_day=math.ceil(told.for_listings * DAY_HOURS),
        promise_per_day=math.ceil(told.promise * DAY_HOURS),
        remedies=told.remedies,
        requests_per_change=spent / changes if changes else None,
        sellers=tuple(shown),
        sellers_in_all=oldest.number,
    )


def _changes_found(connection: Connection, since: datetime, now: datetime) -> int:
    """The changes of known products, one of each type in a version; by the hour, so however many were found."""
    # The hour in which it begins counts as a whole, so that minutes have one too.
    found = tallies.hours(connection, Subject.CHANGE, since.replace(minute=0, second=0, microsecond=0), now)
    return sum(counted.number for hour in found.values() for (kind,), counted in hour.items() if kind in _TYPES)


@dataclass(frozen=True, slots=True)
class _Told:
    """What a way of crawling comes to, in hours and requests per hour; `terms` are those of the recrawl policy."""

    max_age: float
    kept_age: float
    freshness: float
    for_products: float
    for_listings: float
    promise: float
    remedies: Remedies
    terms: tuple[Means, Outlook] | None
    # How many times as long as its interval a seller's round takes.
    stretched: float = 1.0


def _adaptive(settings: Settings, crowd: Crowd, looks: Looks, pool: PoolMeans, what_if: WhatIf) -> _Told:
    max_age = settings.max_age_hours if what_if.max_age is None else what_if.max_age
    means = means_of(settings, pool, looks.look_hours, max_age=max_age)
    found = outlook(crowd.groups, means)
    kept = max(found.kept_age, max_age)
    sources = sum(group.sources for group in crowd.groups)
    promise = sources / max_age
    per_agent = pool.requests_per_hour / max(pool.agents, 1)
    with_pages = max(promise / (1 - LOOK_SHARE), promise + pool.due_pages) if sources else 0.0
    # Longer intervals save listing pages and nothing else.
    left = pool.requests_per_hour - promise
    saves = left >= LOOK_SHARE * pool.requests_per_hour
    return _Told(
        max_age=max_age,
        kept_age=kept,
        freshness=found.freshness,
        for_products=found.per_hour,
        for_listings=looks.pages_per_hour,
        promise=promise,
        remedies=Remedies(
            agents=_needed(with_pages, per_agent),
            products=int(pool.for_products * max_age / len(SOURCES)),
            interval_hours=_interval(looks.pages / left) if saves else None,
            max_age=kept,
        ),
        terms=(means, found),
    )


def _everything(crowd: Crowd, looks: Looks, pool: PoolMeans) -> _Told:
    """Where every due crawl fetches everything: without enough requests a round takes longer than the intervals."""
    stretched = max(1.0, looks.everything_per_hour / pool.requests_per_hour)
    kept = looks.longest_interval * stretched
    per_agent = pool.requests_per_hour / max(pool.agents, 1)
    share = pool.requests_per_hour / looks.everything_per_hour if looks.everything_per_hour else math.inf
    return _Told(
        max_age=looks.longest_interval,
        kept_age=kept,
        freshness=freshness_by_interval(crowd.groups, looks.interval_hours * stretched),
        for_products=(looks.everything_per_hour - looks.due_pages_per_hour) / stretched,
        for_listings=looks.due_pages_per_hour / stretched,
        promise=looks.everything_per_hour,
        remedies=Remedies(
            agents=_needed(looks.everything_per_hour, per_agent),
            products=crowd.products if math.isinf(share) else int(crowd.products * share),
            interval_hours=_interval(looks.everything / pool.requests_per_hour),
            max_age=kept,
        ),
        terms=None,
        stretched=stretched,
    )


def _needed(per_hour: float, per_agent: float) -> int:
    # What comes to a whole number of agents may be a hair above it.
    return math.ceil(per_hour / per_agent - 1e-9)


def _interval(hours: float) -> int | None:
    """Whole hours, or whole days where it is longer than one; None where no seller can have it."""
    wanted = max(1, math.ceil(hours - 1e-9))
    whole = wanted if wanted < DAY_HOURS else math.ceil(wanted / DAY_HOURS) * int(DAY_HOURS)
    return whole if whole <= LONGEST_INTERVAL_HOURS else None


def _least_fresh(connection: Connection, told: _Told, most: int, instead: AnotherInterval | None) -> tuple[str, ...]:
    """The least fresh sellers: compared by classes of like sources, so that few are computed however many there are."""
    found = numbers.classes(connection, instead)
    fresh: list[float] = []
    for one in found:
        groups = [one.group(step) for step in range(1, RATE_STEPS + 1)]
        if told.terms is None:
            fresh += [freshness_by_interval([group], one.look_hours * told.stretched) for group in groups]
        else:
            means, terms = told.terms
            of_class = replace(means, look_hours=one.look_hours)
            fresh += [freshness_of([group], of_class, terms) for group in groups]
    return numbers.least_fresh(connection, found, fresh, most, instead).seller_ids


def _seller(profile: SellerProfile, told: _Told) -> SellerFreshness:
    if told.terms is None:
        hours = profile.interval_hours * told.stretched
        look_hours, freshness = hours, freshness_by_interval(profile.groups, hours)
        per_hour = sum(group.sources for group in profile.groups) / hours
    else:
        means, terms = replace(told.terms[0], look_hours=profile.look_hours), told.terms[1]
        look_hours, freshness = profile.look_hours, freshness_of(profile.groups, means, terms)
        per_hour = fetches_of(profile.groups, means, terms)
    return SellerFreshness(
        profile.seller_id,
        profile.products,
        profile.oldest_hours,
        look_hours,
        profile.interval_hours,
        freshness,
        math.ceil((per_hour + profile.pages / look_hours) * DAY_HOURS),
    )


def _capacity(means: PoolMeans, hours: float) -> int:
    return int(means.requests_per_hour * hours) if means.agents else 0


def _hours_left(now: datetime) -> float:
    """Until midnight in Seoul."""
    local = now.astimezone(SEOUL)
    midnight = datetime.combine(local.date() + timedelta(days=1), datetime.min.time(), SEOUL)
    return (midnight - local).total_seconds() / 3600
