"""The recrawl policy in virtual time, and those that it is compared with: each spends its requests step by step."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, cast

import numpy as np

from benchmarks.recrawl_world import KINDS, STEP, Booleans, Crawler, Floats, Integers
from mustit_pipeline.domain.recrawl import arithmetic, choosing, learning, outlook, pool, worth
from mustit_pipeline.domain.recrawl.choosing import Terms
from mustit_pipeline.domain.recrawl.learning import Evidence, SellerEvidence
from mustit_pipeline.domain.recrawl.outlook import Group, Means, Outlook
from mustit_pipeline.domain.recrawl.worth import Listing, Source

NUMPY = cast(arithmetic.Arithmetic, np)
INTERVAL = 24.0
MIN_CHANCE = 0.01
# The most that one crawl of ours may plan, in hours of the pool.
ALLOWED_HOURS = 2.0
SPARE_BACKLOG_HOURS = 1.0
DRAIN_HOURS = 4.0
# A crawl does not stay open for the few sources of value that it has left.
LONGEST_WAIT_HOURS = 2.0


class Policy(ABC):
    """Spends the requests of each step."""

    def __init__(self, crawler: Crawler, max_age: float) -> None:
        self.crawler = crawler
        self.world = crawler.world
        self.max_age = max_age

    @abstractmethod
    def act(self) -> None:
        """One step's requests."""

    def fetch_best(self, index: Floats) -> tuple[Integers, Booleans]:
        """As many as can be paid, the highest index first."""
        count = min(int(self.crawler.tokens), len(index))
        best = np.argpartition(-index, count - 1)[:count] if count > 0 else np.empty(0, np.int64)
        return best, self.crawler.fetch(best)

    def ages(self) -> Floats:
        """Hours since each source was fetched."""
        return self.crawler.now - self.crawler.last


class Uniform(Policy):
    """Every source equally often."""

    def act(self) -> None:
        self.fetch_best(self.ages())


class Everything(Policy):
    """All of a seller in every interval, seller after seller, as `RECRAWL=everything`."""

    def __init__(self, crawler: Crawler, max_age: float) -> None:
        super().__init__(crawler, max_age)
        self.due = np.linspace(0.0, INTERVAL, self.world.nature.sellers, endpoint=False)
        self.waiting = np.empty(0, np.int64)

    def act(self) -> None:
        while len(self.waiting) < self.crawler.tokens and self.due.min() <= self.crawler.now:
            seller = int(self.due.argmin())
            if self.crawler.tokens < self.world.pages[seller]:
                break
            self.due[seller] = max(self.due[seller] + INTERVAL, self.crawler.now)
            self.crawler.sweep(seller)
            its = self.world.slices[seller]
            self.waiting = np.concatenate([self.waiting, np.arange(its.start, its.stop)])
        count = max(0, int(self.crawler.tokens))
        self.crawler.fetch(self.waiting[:count])
        self.waiting = self.waiting[count:]


class Proportional(Policy):
    """As often as a source changes, by the same estimates as ours but without the listing."""

    def __init__(self, crawler: Crawler, max_age: float) -> None:
        super().__init__(crawler, max_age)
        self.changes, self.hours = np.zeros(self.world.sources), np.zeros(self.world.sources)
        self.blind = Listing(0.0, 1.0)

    def act(self) -> None:
        ages = self.ages()
        prior = learning.seller_rate(SellerEvidence(float(self.changes.sum()), float(self.hours.sum())))
        rates = cast(Floats, learning.source_rate(_evidence(self.changes, self.hours), prior, NUMPY))
        best, changed = self.fetch_best(rates * ages)
        fetched = Source(_all(rates[best]), _all(ages[best]), 0.0)
        said = learning.fetched_evidence(fetched, self.blind, _all(changed.astype(float)), NUMPY)
        kept = learning.kept_share(fetched.age, NUMPY)
        after = learning.learnt(_evidence(self.changes[best], self.hours[best]), said, kept)
        self.changes[best], self.hours[best] = after.changes, after.hours


class BackOff(Policy):
    """A source's interval grows where nothing changed and shrinks where something did, as in Nutch and StormCrawler."""

    def __init__(self, crawler: Crawler, max_age: float) -> None:
        super().__init__(crawler, max_age)
        self.intervals = np.full(self.world.sources, min(INTERVAL, max_age))

    def act(self) -> None:
        best, changed = self.fetch_best(self.ages() / self.intervals)
        self.intervals[best] = np.clip(self.intervals[best] * np.where(changed, 0.8, 1.4), 1.0, self.max_age)


class ListingOnly(Policy):
    """Hourly sweeps as far as a tenth of the requests reaches, and what they signal, longest waiting first."""

    def __init__(self, crawler: Crawler, max_age: float) -> None:
        super().__init__(crawler, max_age)
        self.signalled = np.full(self.world.sources, np.inf)

    def act(self) -> None:
        for seller in _swept(self.crawler, 0.1):
            its = self.world.slices[seller]
            new = self.crawler.sweep(seller) & np.isinf(self.signalled[its])
            self.signalled[its][new] = self.crawler.now
        waiting = np.flatnonzero(np.isfinite(self.signalled))
        first = waiting[np.argsort(self.signalled[waiting], kind="stable")][: max(0, int(self.crawler.tokens))]
        self.crawler.fetch(first)
        self.signalled[first] = np.inf


class FreeOracle(Policy):
    """Knows every rate and what the listing shows; fetches what brings most freshness, however old others get."""

    def __init__(self, crawler: Crawler, max_age: float) -> None:
        super().__init__(crawler, max_age)
        self.signals = np.zeros(self.world.sources)
        self.rate = self._true_rate()
        self.other = _other(self.rate * self.world.shown)
        self.seen = Listing(_all(self.world.shown), max(self.world.nature.false_rate, learning.LOWEST_FALSE_RATE))

    def _true_rate(self) -> Floats:
        """Sales included, as a mean over a seller's products."""
        sellers, of = self.world.nature.sellers, self.world.seller_of
        happened = np.bincount(of[self.world.events.sources[self.world.events.changes]], minlength=sellers)
        expected = np.bincount(of, self.world.rate, minlength=sellers) * self.world.hours
        sizes = np.maximum(np.bincount(of, minlength=sellers), 1)
        sales = np.maximum(happened - expected, 0.0) / self.world.hours / sizes * KINDS
        return self.world.rate + np.where(self.world.kind == 0, sales[of], 0.0)

    def act(self) -> None:
        for seller in _swept(self.crawler, pool.LOOK_SHARE):
            its = self.world.slices[seller]
            self.signals[its] += self.crawler.sweep(seller)
        source = Source(_all(self.rate), _all(self.ages()), _all(self.signals), self.other)
        unseen = cast(Floats, worth.unseen_changes(source, self.seen, NUMPY))
        best, _ = self.fetch_best(self.index(unseen))
        self.signals[best] = 0.0

    def index(self, unseen: Floats) -> Floats:
        """The freshness that a fetch brings."""
        return (1.0 - (1.0 + unseen) * np.exp(-unseen)) / self.rate


class Oracle(FreeOracle):
    """The oracle under the same promise where the budget allows it: those that would grow too old come first."""

    def index(self, unseen: Floats) -> Floats:
        """The freshness that a fetch brings, after those that have to be fetched now."""
        index = super().index(unseen)
        if self.world.sources / self.max_age <= self.crawler.per_hour:
            ages = self.ages()
            oldest = np.argsort(-ages, kind="stable")
            finish = ages[oldest] + STEP + np.arange(1, len(oldest) + 1) / self.crawler.per_hour
            count = int(np.flatnonzero(finish >= self.max_age).max(initial=-1)) + 1
            index[oldest[:count]] += 1e9 * (1.0 + ages[oldest[:count]])
        return index


@dataclass(frozen=True, slots=True)
class Told:
    """What an operator is told at a time: the age that is kept, and the share of products that are expected fresh."""

    at: float
    kept_age: float
    freshness: float


class Adaptive(Policy):
    """The policy of this project, seller by seller as its crawls run."""

    def __init__(self, crawler: Crawler, max_age: float) -> None:
        super().__init__(crawler, max_age)
        world = self.world
        self.changes, self.hours = np.zeros(world.sources), np.zeros(world.sources)
        self.changed_at = np.full(world.sources, -1e6)
        self.signals = np.zeros(world.sources)
        self.learnt = [[SellerEvidence() for _ in range(KINDS)] for _ in range(world.nature.sellers)]
        self.learnt_at = np.zeros(world.nature.sellers)
        self.look_hours = np.full(world.nature.sellers, 1.0)
        # By reason: a later crawl's signals come before an earlier one's sources of value.
        self.queues: tuple[list[tuple[int, Integers]], ...] = ([], [], [])
        self.planned = 0
        self.outlook = self._outlook()
        self.price = self.outlook.price
        self.kept_age = self.outlook.kept_age
        self.told: list[Told] = []

    def act(self) -> None:
        crawler, self.planned = self.crawler, 0
        if crawler.now % 24.0 < STEP:
            self.outlook = self._outlook()
            self.kept_age = outlook.moved_age(self.kept_age, self.outlook, 24.0)
            self.told.append(Told(crawler.now, self.kept_age, self.outlook.freshness**KINDS))
        allowed = ALLOWED_HOURS * crawler.per_hour
        for seller in self._due():
            if crawler.tokens >= self.world.pages[seller]:
                self._look(seller, self.price, allowed)
        self._work()
        for seller in self._light(self.price):
            # A light crawl is never made at the cost of what is planned.
            spare = self._backlog() <= crawler.per_hour * SPARE_BACKLOG_HOURS
            if crawler.tokens < self.world.pages[seller] or not spare:
                break
            self._look(seller, self.price, allowed)
            self._work()
        self._spend_spare()
        wanted = self.planned + self._backlog() * STEP / DRAIN_HOURS
        self.price = pool.moved_price(self.price, wanted, crawler.per_hour * STEP, STEP)

    def _spend_spare(self) -> None:
        """Requests that would be lost go to the seller where most is expected, below the price."""
        if self._backlog():
            return
        for seller in self._light(0.0):
            if self.crawler.tokens < max(0.5 * self.crawler.per_hour, 3 * self.world.pages[seller]):
                return
            before = self.planned
            self._look(seller, pool.LOWEST_PRICE, self.crawler.tokens - float(self.world.pages[seller]))
            self._work()
            self.planned = before

    def _backlog(self) -> int:
        return sum(len(sources) for queue in self.queues for _, sources in queue)

    def _work(self) -> None:
        """Fetch what is planned, as far as requests reach: what is urgent, or has waited, comes first."""
        _, urgent, rest = self.queues
        waited = [one for one in rest if self.crawler.now - self.crawler.last_look[one[0]] >= LONGEST_WAIT_HOURS]
        urgent += waited
        rest[:] = rest[len(waited) :]
        for queue in self.queues:
            while queue and self.crawler.tokens >= 1.0:
                seller, sources = queue[0]
                count = int(self.crawler.tokens)
                self._fetch(seller, sources[:count])
                if count < len(sources):
                    queue[0] = (seller, sources[count:])
                else:
                    queue.pop(0)

    def _due(self) -> list[int]:
        """Due sellers that are not being crawled, longest waiting first."""
        busy = self._busy()
        waits = [(self._hours_until_due(seller), seller) for seller in range(self.world.nature.sellers)]
        return [seller for wait, seller in sorted(waits) if wait <= 0.0 and seller not in busy]

    def _hours_until_due(self, seller: int) -> float:
        now, its = self.crawler.now, self.world.slices[seller]
        since = float(now - self.crawler.last_look[seller])
        oldest = now - float(self.crawler.last[its].min())
        return choosing.hours_until_due(INTERVAL, since, self.kept_age, oldest)

    def _busy(self) -> set[int]:
        return {seller for queue in self.queues for seller, _ in queue}

    def _light(self, price: float) -> list[int]:
        """The light crawls that are worth so much, by what they are worth."""
        busy = self._busy()
        found: list[tuple[float, int]] = []
        for seller, its in enumerate(self.world.slices):
            hours = float(self.crawler.now - self.crawler.last_look[seller])
            if seller in busy or hours < pool.LEAST_LOOK_HOURS:
                continue
            each = [(self._seller_rate(seller, kind), self._listing(seller, kind).shown) for kind in range(KINDS)]
            size = (its.stop - its.start) / KINDS
            swept = sum(pool.sweep_value(size, rate, shown, hours) for rate, shown in each)
            worth = pool.light_crawl_value(
                swept, float(self.world.pages[seller]), hours, self._share(seller), self.price
            )
            if pool.is_light_crawl_due(worth, price, hours):
                found.append((-worth, seller))
        return [seller for _, seller in sorted(found)]

    def _look(self, seller: int, price: float, allowance: float) -> None:
        """One crawl: the sweep, then what is chosen."""
        its, crawler = self.world.slices[seller], self.crawler
        hours = float(crawler.now - crawler.last_look[seller])
        self.look_hours[seller] += 0.2 * (hours - self.look_hours[seller])
        self.signals[its] += crawler.sweep(seller)
        ages = crawler.now - crawler.last[its]
        rates = self._rates(seller)
        seen = self._seen(seller)
        source = Source(_all(rates), _all(ages), _all(self.signals[its]), _other(_array(seen.shown) * rates))
        unseen = worth.unseen_changes(source, seen, NUMPY)
        weights = worth.weight(
            cast(Any, self.world.in_stock[its]), _all(crawler.now - self.changed_at[its]), arithmetic=NUMPY
        )
        terms = Terms(
            allowance=max(1, int(allowance)),
            price=price,
            kept_age=self.kept_age,
            promise_broken=self.outlook.promise_broken,
            look_hours=float(self.look_hours[seller]) * 1.5,
            promise_rate=choosing.promise_rate(float(len(ages)), self.kept_age, self._share(seller)),
            min_chance=MIN_CHANCE,
        )
        order, ends = chosen(
            ages,
            cast(Floats, worth.value(unseen, source.rate, weights, arithmetic=NUMPY)),
            cast(Floats, worth.change_chance(unseen, NUMPY)),
            cast(Booleans, worth.is_believed(source, seen, NUMPY)),
            terms,
        )
        self.planned += len(order) + int(self.world.pages[seller])
        for queue, part in zip(self.queues, np.split(order, ends), strict=True):
            if len(part):
                queue.append((seller, its.start + part))

    def _fetch(self, seller: int, sources: Integers) -> None:
        """Fetch and learn."""
        crawler = self.crawler
        within = sources - self.world.slices[seller].start
        ages = crawler.now - crawler.last[sources]
        rates, every = self._rates(seller), self._seen(seller)
        other = _array(_other(_array(every.shown) * rates))[within]
        fetched = Source(_all(rates[within]), _all(ages), _all(self.signals[sources]), _all(other))
        seen = Listing(_all(_array(every.shown)[within]), _all(_array(every.false_rate)[within]))
        changed = crawler.fetch(sources)
        said = learning.fetched_evidence(fetched, seen, _all(changed.astype(float)), NUMPY)
        own = _evidence(self.changes[sources], self.hours[sources])
        own = learning.learnt(own, said, learning.kept_share(fetched.age, NUMPY))
        self.changes[sources], self.hours[sources] = own.changes, own.hours
        self.signals[sources] = 0.0
        self.changed_at[sources[changed]] = crawler.now
        kept = learning.kept_share(float(crawler.now - self.learnt_at[seller]))
        self.learnt_at[seller] = crawler.now
        for kind in range(KINDS):
            total = _summed(said, self.world.kind[sources] == kind)
            self.learnt[seller][kind] = learning.learnt_of_seller(self.learnt[seller][kind], total, kept)

    def _seller_rate(self, seller: int, kind: int) -> float:
        return learning.seller_rate(self.learnt[seller][kind])

    def _listing(self, seller: int, kind: int) -> Listing:
        return learning.listing(self.learnt[seller][kind])

    def _rates(self, seller: int) -> Floats:
        its = self.world.slices[seller]
        priors = np.array([self._seller_rate(seller, kind) for kind in range(KINDS)])
        own = _evidence(self.changes[its], self.hours[its])
        return cast(Floats, learning.source_rate(own, _all(priors[self.world.kind[its]]), NUMPY))

    def _seen(self, seller: int) -> Listing:
        kinds = self.world.kind[self.world.slices[seller]]
        each = [self._listing(seller, kind) for kind in range(KINDS)]
        return Listing(
            _all(np.array([one.shown for one in each])[kinds]), _all(np.array([one.false_rate for one in each])[kinds])
        )

    def _share(self, seller: int) -> float:
        """A seller's share of the pool's requests for sources."""
        its = self.world.slices[seller]
        return self.crawler.per_hour * (its.stop - its.start) / self.world.sources

    def _outlook(self) -> Outlook:
        """By sources grouped by the octave of their rate."""
        sellers = range(self.world.nature.sellers)
        rates = np.concatenate([self._rates(seller) for seller in sellers])
        seen = [self._seen(seller) for seller in sellers]
        shown = np.concatenate([_array(one.shown) for one in seen])
        false = np.concatenate([_array(one.false_rate) for one in seen])
        other = _array(_other(shown * rates))
        octaves = np.floor(np.log2(rates)).astype(int)
        weights = np.where(self.world.in_stock, 1.0, worth.SOLD_OUT_WEIGHT)
        groups: list[Group] = []
        for octave in np.unique(octaves):
            alike = octaves == octave
            listing = Listing(float(shown[alike].mean()), float(false[alike].mean()))
            means = [float(each[alike].mean()) for each in (rates, weights, other)]
            groups.append(Group(float(alike.sum()), means[0], means[1], listing, means[2]))
        pages = float((self.world.pages / self.look_hours).sum())
        means = Means(
            requests_per_hour=max(self.crawler.per_hour - pages, 0.1 * self.crawler.per_hour),
            look_hours=float(self.look_hours.mean()),
            max_age=self.max_age,
            min_chance=MIN_CHANCE,
        )
        return outlook.outlook(groups, means)


def chosen(
    ages: Floats, values: Floats, chances: Floats, believed: Booleans, terms: Terms
) -> tuple[Integers, list[int]]:
    """`choosing.chosen` for arrays, where every source was fetched before; a test compares the two.

    Also where in this order the late ones end, and the other urgent ones.
    """
    oldest = np.argsort(-ages, kind="stable")
    slack = np.maximum(0.0, choosing.fetched_before(terms.kept_age) - terms.look_hours - ages[oldest])
    needed = (np.arange(1, len(ages) + 1) - terms.promise_rate * slack).max(initial=0.0)
    too_old = np.zeros(len(ages), bool)
    too_old[oldest[: math.ceil(needed)]] = True
    worth = (values >= terms.price) & (chances >= terms.min_chance)
    late = (ages >= choosing.fetched_before(terms.kept_age)) & (not terms.promise_broken)
    signalled = worth & believed & ~late
    aged = too_old & ~signalled & ~late
    valued = worth & ~signalled & ~too_old & ~late
    by_value = np.argsort(-values, kind="stable")
    parts = [
        oldest[late[oldest]],
        by_value[signalled[by_value]],
        oldest[aged[oldest]],
        by_value[valued[by_value]],
    ]
    ends = [len(parts[0]), len(parts[0]) + len(parts[1]) + len(parts[2])]
    if terms.promise_broken:
        ends[1] -= len(parts[2])
        places = np.concatenate([2 * np.arange(len(parts[2])), 2 * np.arange(len(parts[3])) + 1])
        parts[2:] = [np.concatenate(parts[2:])[np.argsort(places, kind="stable")]]
    return np.concatenate(parts)[: terms.allowance], ends


def _swept(crawler: Crawler, share: float) -> Iterator[int]:
    """Sellers whose listing is swept now: every hour, or less often where pages would take more than a share."""
    pages = crawler.world.pages
    spacing = max(1.0, float(pages.sum()) / (share * crawler.per_hour))
    for seller in np.flatnonzero(crawler.now - crawler.last_look >= spacing):
        if crawler.tokens >= pages[seller]:
            yield int(seller)


def _evidence(changes: Floats, hours: Floats) -> Evidence:
    return Evidence(_all(changes), _all(hours))


def _summed(said: SellerEvidence, where: Booleans) -> SellerEvidence:
    return SellerEvidence(*(float(_array(getattr(said, each.name))[where].sum()) for each in fields(said)))


def _other(rates: Floats) -> float:
    """Of each source's product the other source's rate."""
    return _all(rates.reshape(-1, KINDS)[:, ::-1].ravel())


def _all(numbers: Floats) -> float:
    """The formulas are typed for one number, and arrays go through the same code."""
    return cast(float, numbers)


def _array(numbers: float) -> Floats:
    return cast(Floats, numbers)
