"""A marketplace in virtual time: what changes when, what its listing shows, and what fetches find."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]

STEP = 0.5
PAGE = 500
KINDS = 2
# What 0, 1, 2, … unseen changes count for in harmonic staleness.
HARMONIC = np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, 200))])


@dataclass(frozen=True, slots=True)
class Nature:
    """What kind of world it is; times are hours, rates are per source and hour."""

    name: str = "usual"
    products: int = 3000
    sellers: int = 12
    days: int = 30
    median_rate: float = 0.03 / 24
    # Standard deviations of the logarithms of rates: between sellers, products, and the two sources of a product.
    spreads: tuple[float, float, float] = (0.7, 1.3, 0.5)
    shown: tuple[float, float] = (0.3, 0.9)
    false_rate: float = 0.02 / 24
    season: float = 0.8
    sales_each: float = 2.0
    sold_out: float = 0.2


USUAL = Nature()
OTHERS = (
    replace(USUAL, name="ten times faster", median_rate=USUAL.median_rate * 10),
    replace(USUAL, name="ten times slower", median_rate=USUAL.median_rate / 10),
    replace(USUAL, name="all alike", spreads=(0.0, 0.0, 0.0), median_rate=0.1 / 24),
    replace(USUAL, name="listing shows nothing", shown=(0.0, 0.0), false_rate=0.0),
    replace(USUAL, name="listing lies", shown=(0.0, 0.0), false_rate=1.0 / 24),
)


@dataclass(frozen=True, slots=True)
class Events:
    """What happens in order of time: a source changes or not, the product's listing entry changes or not."""

    times: Floats
    sources: Integers
    changes: Booleans
    shows: Booleans


class World:
    """Sources in the order of seller, product and kind; the same seed is the same world for every policy."""

    def __init__(self, nature: Nature, seed: int) -> None:
        self.nature = nature
        self.random = np.random.default_rng(seed)
        self.hours = nature.days * 24.0
        self.seller_of = np.repeat(self._sellers(), KINDS)
        self.kind = np.tile(np.arange(KINDS), nature.products)
        self.sources = nature.products * KINDS
        self.slices = [
            slice(*np.searchsorted(self.seller_of, [seller, seller + 1])) for seller in range(nature.sellers)
        ]
        self.pages = np.array([-(-(its.stop - its.start) // KINDS // PAGE) for its in self.slices])
        self.rate = self._rates()
        self.shown = self.random.uniform(*nature.shown, (nature.sellers, KINDS))[self.seller_of, self.kind]
        self.in_stock = np.repeat(self.random.random(nature.products) >= nature.sold_out, KINDS)
        self.first_ages = self.random.random(self.sources)
        self.events = self._events()

    def _sellers(self) -> Integers:
        """A few large sellers and many small ones, each product's seller in order."""
        sizes = self.random.lognormal(0.0, 1.0, self.nature.sellers)
        ends = np.round(np.cumsum(sizes) / sizes.sum() * self.nature.products)
        return np.searchsorted(ends, np.arange(self.nature.products), side="right")

    def _rates(self) -> Floats:
        of_sellers, of_products, of_sources = self.nature.spreads
        logs = self.random.normal(0.0, of_sellers, self.nature.sellers)[self.seller_of]
        logs += np.repeat(self.random.normal(0.0, of_products, self.nature.products), KINDS)
        logs += self.random.normal(0.0, of_sources, self.sources)
        return np.clip(self.nature.median_rate * np.exp(logs), 1e-6, 1.0)

    def _events(self) -> Events:
        changed = self._drawn(self.rate)
        false = self._drawn(np.where(self.kind == 0, self.nature.false_rate, 0.0))
        sales = self._sales()
        sources = np.concatenate([changed[1], false[1], sales[1]])
        times = np.concatenate([changed[0], false[0], sales[0]])
        changes = np.ones(len(sources), bool)
        changes[len(changed[0]) : len(changed[0]) + len(false[0])] = False
        shows = ~changes | (self.random.random(len(sources)) < self.shown[sources])
        order = np.argsort(times)
        return Events(times[order], sources[order], changes[order], shows[order])

    def _drawn(self, rates: Floats) -> tuple[Floats, Integers]:
        """Poisson events, more of them by day than by night."""
        highest = 1.0 + self.nature.season
        sources = np.repeat(np.arange(self.sources), self.random.poisson(rates * highest * self.hours))
        times = self.random.uniform(0.0, self.hours, len(sources))
        season = 1.0 + self.nature.season * np.sin((times - 9.0) * (2 * np.pi / 24))
        happens = self.random.random(len(sources)) * highest < season
        return times[happens], sources[happens]

    def _sales(self) -> tuple[Floats, Integers]:
        """Two fifths of a seller's products change within an hour, and back two days later."""
        times, sources = [np.empty(0)], [np.empty(0, np.int64)]
        for its in self.slices:
            for begin in self.random.uniform(0, self.hours, self.random.poisson(self.nature.sales_each)):
                some = np.arange(its.start, its.stop, KINDS)
                some = some[self.random.random(len(some)) < 0.4]
                for at in (begin, begin + 48.0):
                    if at < self.hours - 1.0:
                        times.append(at + self.random.random(len(some)))
                        sources.append(some)
        return np.concatenate(times), np.concatenate(sources)


@dataclass(frozen=True, slots=True)
class Measured:
    """What a policy came to."""

    freshness: float
    harmonic_staleness: float
    shown_p50: float
    delay_p50: float
    delay_p95: float
    oldest_age: float
    requests_each_day: float
    requests_per_change: float
    look_hours: float


class Crawler:
    """The state of one policy in one world: what is stored, what has changed since, and what was spent."""

    def __init__(self, world: World, requests_per_day: float, first_age: float) -> None:
        self.world = world
        self.per_hour = requests_per_day * world.nature.products / 24.0
        self.now = 0.0
        self.tokens = self.per_hour * STEP
        self.last = -world.first_ages * first_age
        self.unseen = np.zeros(world.sources, np.int64)
        # Entries of the listing that changed since the last sweep of their seller.
        self.listed = np.zeros(world.nature.products, bool)
        self.last_look = np.zeros(world.nature.sellers)
        self.requests = 0
        self._next_event = 0
        self._fetches: list[tuple[float, Integers]] = []
        self._found = 0
        self._looks: list[tuple[float, int]] = []
        self._fresh: list[float] = []
        self._harmonic: list[float] = []
        self._oldest: list[float] = []

    def advance(self) -> None:
        """To the next step: events happen; requests unused for an hour are lost."""
        self.now += STEP
        self.tokens = min(self.tokens + self.per_hour * STEP, max(self.per_hour, 1.0) * 1.0)
        events, first = self.world.events, self._next_event
        self._next_event = end = int(np.searchsorted(events.times, self.now, side="right"))
        sources = events.sources[first:end]
        np.add.at(self.unseen, sources[events.changes[first:end]], 1)
        self.listed[sources[events.shows[first:end]] // KINDS] = True
        self._fresh.append(self._fresh_now())

    def measure(self) -> None:
        """After the step's requests."""
        self._fresh.append(self._fresh_now())
        self._harmonic.append(float(HARMONIC[np.minimum(self.unseen, len(HARMONIC) - 1)].mean()))
        self._oldest.append(self.now - float(self.last.min()))

    def _fresh_now(self) -> float:
        return 1.0 - float((self.unseen > 0).reshape(-1, KINDS).any(axis=1).mean())

    def sweep(self, seller: int) -> Booleans:
        """Fetch a seller's listing: which of its sources belong to a product whose entry changed."""
        self._spend(int(self.world.pages[seller]))
        its = self.world.slices[seller]
        products = slice(its.start // KINDS, its.stop // KINDS)
        changed = np.repeat(self.listed[products], KINDS)
        self.listed[products] = False
        self._looks.append((float(self.now - self.last_look[seller]), its.stop - its.start))
        self.last_look[seller] = self.now
        return changed

    def fetch(self, sources: Integers) -> Booleans:
        """Fetch sources: which of them have changed."""
        self._spend(len(sources))
        changed = self.unseen[sources] > 0
        self.unseen[sources] = 0
        self.last[sources] = self.now
        self._found += int(changed.sum())
        self._fetches.append((self.now, sources))
        return changed

    def _spend(self, requests: int) -> None:
        self.tokens -= requests
        self.requests += requests

    def measured(self) -> Measured:
        """Over the whole time."""
        delays, shows = self._delays()
        nature = self.world.nature
        looked = sum(size for _, size in self._looks)
        return Measured(
            freshness=float(np.mean(self._fresh)),
            harmonic_staleness=float(np.mean(self._harmonic)),
            shown_p50=float(np.median(delays[shows])) if shows.any() else 0.0,
            delay_p50=float(np.median(delays)),
            delay_p95=float(np.quantile(delays, 0.95)),
            oldest_age=max(self._oldest),
            requests_each_day=self.requests / nature.products / nature.days,
            requests_per_change=self.requests / max(1, self._found),
            look_hours=sum(hours * size for hours, size in self._looks) / max(1, looked),
        )

    def oldest_on_day(self, begin: float) -> float:
        """The oldest age in the 24 hours after a time."""
        first = round(begin / STEP)
        return max(self._oldest[first - 1 : first - 1 + round(24.0 / STEP)])

    def _delays(self) -> tuple[Floats, Booleans]:
        """Hours from each change to the fetch that found it, or to the end."""
        changes = self.world.events.changes
        times, sources = self.world.events.times[changes], self.world.events.sources[changes]
        span = self.world.hours + 1.0
        fetched = np.concatenate([each * span + at for at, each in self._fetches] or [np.empty(0)])
        # One that is never fetched again is found at the end.
        fetched = np.sort(np.concatenate([fetched, np.arange(self.world.sources) * span + self.world.hours]))
        found = fetched[np.searchsorted(fetched, sources * span + times)] - sources * span
        return np.maximum(found - times, 0.0), self.world.events.shows[changes]
