"""The recrawl policy: which sources of which products are worth a request, and the age that a budget keeps.

A source is the detail or the options of one product. Times are hours, rates are events per hour. The formulas are
written for an `Arithmetic`, so that floats, arrays and SQL expressions go through the same code; no exponent exceeds
`MOST_EXPECTED`, because PostgreSQL raises an error where a double would underflow.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

# A source's own evidence counts beside half a change at its seller's mean rate: rates differ by orders of magnitude.
PRIOR_SHAPE = 0.5
# A seller's first days: a change in ten days for each source.
PRIOR_CHANGES = 2.0
PRIOR_HOURS = 480.0
# The listing is believed until fetches disprove it.
PRIOR_SHOWN_CHANGES = 2.0
PRIOR_LISTED_CHANGES = 4.0
# Changes were credited to the listing by what was believed at their time, so that old ones must go.
MOST_LISTED_CHANGES = 100.0
PRIOR_FALSE_SIGNALS = 0.1
PRIOR_WATCHED_HOURS = 1000.0

HALF_LIFE_HOURS = 28 * 24.0
LOWEST_RATE, HIGHEST_RATE = 1e-5, 2.0
LOWEST_SHOWN, HIGHEST_SHOWN = 0.001, 0.98
LOWEST_FALSE_RATE, HIGHEST_FALSE_RATE = 1e-6, 2.0
MOST_EXPECTED = 50.0

SOLD_OUT_WEIGHT = 0.5
RECENTLY_CHANGED_WEIGHT = 1.5
RECENT_HOURS = 24.0

BELIEVED_CHANCE = 0.1
# However long the promise is, so much of the pool goes round by age: rates that are believed too low are found out.
EXPLORED_SHARE = 0.1
# The oldest get so much of what new and signalled products leave, where the promise cannot be kept.
OLDEST_SHARE = 0.5

LOWEST_PRICE, HIGHEST_PRICE = 1e-6, 1e6
PRICE_GAIN = 0.2
LEAST_LOOK_HOURS = 1.0
# Listing pages may take so much of a seller's requests even where the listing shows nothing of worth.
LOOK_SHARE = 0.05


class Arithmetic(Protocol):
    """What the formulas need beyond + - * / and comparisons."""

    def exp(self, x: float, /) -> float: ...
    def log(self, x: float, /) -> float: ...
    def minimum(self, x: float, y: float, /) -> float: ...
    def maximum(self, x: float, y: float, /) -> float: ...
    def where(self, condition: bool, then: float, otherwise: float, /) -> float: ...


class Floats:
    """The arithmetic of single numbers."""

    def exp(self, x: float, /) -> float:
        """e to the power of x."""
        return math.exp(x)

    def log(self, x: float, /) -> float:
        """The natural logarithm."""
        return math.log(x)

    def minimum(self, x: float, y: float, /) -> float:
        """The smaller one."""
        return min(x, y)

    def maximum(self, x: float, y: float, /) -> float:
        """The larger one."""
        return max(x, y)

    def where(self, condition: bool, then: float, otherwise: float, /) -> float:
        """One of two numbers, both of which are computed."""
        return then if condition else otherwise


FLOATS = Floats()


@dataclass(frozen=True, slots=True)
class Evidence:
    """Changes seen in so many hours, older ones forgotten in part: of one source, or of a seller's sources together."""

    changes: float = 0.0
    hours: float = 0.0


@dataclass(frozen=True, slots=True)
class ListingEvidence:
    """What fetches said of a seller's listing, older ones forgotten in part; for details and options apart."""

    shown_changes: float = 0.0
    changes: float = 0.0
    false_signals: float = 0.0
    hours: float = 0.0


@dataclass(frozen=True, slots=True)
class Listing:
    """How far a seller's listing can be trusted for one kind of source."""

    shown: float
    false_rate: float


@dataclass(frozen=True, slots=True)
class Source:
    """A source at the time of a look: its change rate, hours since its last fetch, and signals of the listing since."""

    rate: float
    age: float
    signals: float


def seller_rate(evidence: Evidence, arithmetic: Arithmetic = FLOATS) -> float:
    """The mean change rate of a seller's sources of one kind; a usual one for a seller's first days."""
    rate = (PRIOR_CHANGES + evidence.changes) / (PRIOR_HOURS + evidence.hours)
    return _clamped(rate, LOWEST_RATE, HIGHEST_RATE, arithmetic)


def source_rate(evidence: Evidence, prior: float, arithmetic: Arithmetic = FLOATS) -> float:
    """The change rate of one source: the mean of a Gamma distribution around its seller's rate."""
    rate = (PRIOR_SHAPE + evidence.changes) / (PRIOR_SHAPE / prior + evidence.hours)
    return _clamped(rate, LOWEST_RATE, HIGHEST_RATE, arithmetic)


def listing(evidence: ListingEvidence, arithmetic: Arithmetic = FLOATS) -> Listing:
    """The share of changes that the listing shows, and how often it signals a change that is none."""
    shown = (PRIOR_SHOWN_CHANGES + evidence.shown_changes) / (PRIOR_LISTED_CHANGES + evidence.changes)
    false_rate = (PRIOR_FALSE_SIGNALS + evidence.false_signals) / (PRIOR_WATCHED_HOURS + evidence.hours)
    return Listing(
        _clamped(shown, LOWEST_SHOWN, HIGHEST_SHOWN, arithmetic),
        _clamped(false_rate, LOWEST_FALSE_RATE, HIGHEST_FALSE_RATE, arithmetic),
    )


def signalled_changes(source: Source, seen: Listing, arithmetic: Arithmetic = FLOATS) -> float:
    """What the listing's signals add to the expected number of unseen changes."""
    added = source.signals * arithmetic.log(1.0 + seen.shown * source.rate / seen.false_rate)
    return arithmetic.minimum(added, MOST_EXPECTED)


def unseen_changes(source: Source, seen: Listing, arithmetic: Arithmetic = FLOATS) -> float:
    """The expected number of changes since the last fetch that no fetch has seen."""
    hidden = (1.0 - seen.shown) * source.rate * source.age
    return arithmetic.minimum(hidden + signalled_changes(source, seen, arithmetic), MOST_EXPECTED)


def change_chance(unseen: float, arithmetic: Arithmetic = FLOATS) -> float:
    """The chance of at least one unseen change."""
    return 1.0 - arithmetic.exp(-unseen)


def is_believed(source: Source, seen: Listing, arithmetic: Arithmetic = FLOATS) -> bool:
    """Whether the listing's signals alone make a change likely enough to fetch the source at once."""
    return change_chance(signalled_changes(source, seen, arithmetic), arithmetic) >= BELIEVED_CHANCE


def kept_share(hours: float, arithmetic: Arithmetic = FLOATS) -> float:
    """The share of older evidence that is left after so many hours."""
    return arithmetic.exp(-arithmetic.minimum(hours * (math.log(2.0) / HALF_LIFE_HOURS), MOST_EXPECTED))


def fetched_evidence(source: Source, seen: Listing, changed: float, arithmetic: Arithmetic = FLOATS) -> ListingEvidence:
    """What one unconditional fetch says; `changed` is 1 or 0. A seller's evidence grows by the sum over its fetches.

    Where something changed, the changes are counted as expected under what is believed: hidden ones by the age, shown
    ones by the signals, given that there was at least one.
    """
    true_share = seen.shown * source.rate / (seen.shown * source.rate + seen.false_rate)
    shown = source.signals * true_share
    hidden = (1.0 - seen.shown) * source.rate * source.age
    chance = change_chance(unseen_changes(source, seen, arithmetic), arithmetic)
    # A change at once after a fetch, which nothing announced, is one hidden change; and no division by nothing.
    expects = chance > 1e-6
    certain = arithmetic.maximum(chance, 1e-6)
    shown = changed * arithmetic.where(expects, shown / certain, 0.0)
    hidden = changed * arithmetic.where(expects, hidden / certain, 1.0)
    return ListingEvidence(
        shown_changes=shown,
        changes=shown + hidden,
        false_signals=arithmetic.maximum(source.signals - shown, 0.0),
        hours=source.age,
    )


def learnt(before: Evidence, fetched: ListingEvidence, kept: float) -> Evidence:
    """The evidence of a source or a seller after fetches, with the share of the older evidence that is kept."""
    return Evidence(before.changes * kept + fetched.changes, before.hours * kept + fetched.hours)


def learnt_listing(
    before: ListingEvidence, fetched: ListingEvidence, kept: float, arithmetic: Arithmetic = FLOATS
) -> ListingEvidence:
    """The evidence about a seller's listing after fetches; the latest changes say what share it shows."""
    latest = arithmetic.minimum(1.0, MOST_LISTED_CHANGES / arithmetic.maximum(before.changes, 1.0))
    kept_changes = arithmetic.minimum(kept, latest)
    return ListingEvidence(
        before.shown_changes * kept_changes + fetched.shown_changes,
        before.changes * kept_changes + fetched.changes,
        before.false_signals * kept + fetched.false_signals,
        before.hours * kept + fetched.hours,
    )


def weight(in_stock: bool, hours_since_change: float, boost: float = 1.0, arithmetic: Arithmetic = FLOATS) -> float:
    """How much a product counts: less when sold out, more after a recent change, times an operator's boost."""
    stock = arithmetic.where(in_stock, 1.0, SOLD_OUT_WEIGHT)
    return boost * stock * arithmetic.where(hours_since_change <= RECENT_HOURS, RECENTLY_CHANGED_WEIGHT, 1.0)


def value(unseen: float, rate: float, weight: float, cost: float = 1.0, arithmetic: Arithmetic = FLOATS) -> float:
    """What a fetch is worth per request: the hours for which the source is expected to have been stale, weighted."""
    return weight / (cost * rate) * _staleness(unseen, arithmetic)


def _staleness(unseen: float, arithmetic: Arithmetic) -> float:
    """x - 1 + exp(-x), by its series where the difference would lose its digits."""
    series = unseen * unseen * (0.5 - unseen / 6.0 + unseen * unseen / 24.0)
    return arithmetic.where(unseen < 1e-3, series, unseen - 1.0 + arithmetic.exp(-unseen))


@dataclass(frozen=True, slots=True)
class Candidate:
    """A source that a crawl may fetch; without an age it was never fetched."""

    key: int
    age: float | None
    value: float
    chance: float
    believed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a crawl may spend: its requests, the pool's price, and the age that is kept."""

    allowance: int
    price: float
    # The promise, or longer where the pool cannot keep it.
    kept_age: float
    promise_broken: bool
    # Until the seller is looked at again, and its share of the pool until then.
    look_hours: float
    requests_per_hour: float
    min_chance: float


class Reason(IntEnum):
    """Why a source is fetched, in the order in which requests are spent."""

    NEW = 1
    SIGNALLED = 2
    AGE = 3
    VALUE = 4


@dataclass(frozen=True, slots=True)
class Choice:
    """A source to fetch, and why."""

    key: int
    reason: Reason


def chosen(candidates: Sequence[Candidate], terms: Terms) -> list[Choice]:
    """What a crawl fetches, in this order, as far as its allowance reaches.

    Where the promise is broken, those that grow too old and those of value take turns, so that each get half.
    """
    too_old = _too_old(candidates, terms)
    reasons = [(_reason(one, terms, too_old=one.key in too_old), one) for one in candidates]
    wanted = [(reason, one) for reason, one in reasons if reason is not None]
    ordered: list[tuple[tuple[int, int], Choice]] = []
    for reason in Reason:
        of_reason = [one for its_reason, one in wanted if its_reason is reason]
        of_reason.sort(key=lambda one: (-(one.age or 0.0) if reason is Reason.AGE else -one.value, one.key))
        for rank, one in enumerate(of_reason):
            takes_turns = terms.promise_broken and reason in (Reason.AGE, Reason.VALUE)
            place = (Reason.AGE, 2 * rank + (reason is Reason.VALUE)) if takes_turns else (reason, rank)
            ordered.append((place, Choice(one.key, reason)))
    ordered.sort(key=lambda placed: placed[0])
    return [choice for _, choice in ordered[: max(0, terms.allowance)]]


def _reason(one: Candidate, terms: Terms, *, too_old: bool) -> Reason | None:
    if one.age is None:
        return Reason.NEW
    worth = one.value >= terms.price and one.chance >= terms.min_chance
    if worth and one.believed:
        return Reason.SIGNALLED
    if too_old:
        return Reason.AGE
    return Reason.VALUE if worth else None


def _too_old(candidates: Sequence[Candidate], terms: Terms) -> set[int]:
    """The oldest sources up to the last that would pass the kept age before the seller's requests reach it.

    The k-th oldest is reached after k requests; so the oldest are fetched early enough that none is late.
    """
    aged = sorted((-one.age, one.key) for one in candidates if one.age is not None)
    late = 0
    for rank, (age, _) in enumerate(aged, start=1):
        if -age + terms.look_hours + rank / terms.requests_per_hour >= terms.kept_age:
            late = rank
    return {key for _, key in aged[:late]}


def moved_price(price: float, wanted: float, affordable: float, hours: float) -> float:
    """The pool's price after some hours in which crawls wanted so many requests and could afford so many."""
    excess = _clamped(wanted / max(affordable, 1.0) - 1.0, -1.0, 1.0, FLOATS)
    return _clamped(price * math.exp(PRICE_GAIN * min(hours, 24.0) * excess), LOWEST_PRICE, HIGHEST_PRICE, FLOATS)


def sweep_value(sources: float, rate: float, shown: float, hours: float, arithmetic: Arithmetic = FLOATS) -> float:
    """What a sweep finds after so many hours: for how long sources of one kind were stale and the listing knew it."""
    visible = shown * rate
    return sources / visible * _staleness(arithmetic.minimum(visible * hours, MOST_EXPECTED), arithmetic)


def light_crawl_value(swept: float, pages: float, hours: float, requests_per_hour: float, price: float) -> float:
    """What a light crawl is worth per listing page; at least the price once pages are few beside what is fetched.

    `swept` is the value of the sweep over all kinds of sources, `requests_per_hour` the seller's share of the pool.
    """
    return swept / pages + price * LOOK_SHARE * requests_per_hour * hours / pages


def is_light_crawl_due(worth: float, price: float, hours: float) -> bool:
    """Whether a seller's light crawl is worth its requests; the one of most worth goes first."""
    return hours >= LEAST_LOOK_HOURS and worth >= price


@dataclass(frozen=True, slots=True)
class Group:
    """Sources that are alike: how many, their change rate and weight, and their listing."""

    sources: float
    rate: float
    weight: float
    seen: Listing


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What the pool has: requests per hour without listing pages and new products, and hours between two looks."""

    requests_per_hour: float
    look_hours: float
    max_age: float
    min_chance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What these means keep."""

    kept_age: float
    promise_broken: bool
    price: float
    freshness: float
    signalled_per_hour: float
    planned_per_hour: float
    # What would keep the promise.
    needed_per_hour: float


def outlook(groups: Sequence[Group], means: Means) -> Outlook:
    """The age that is kept, the price, and the expected share of sources that are fresh."""
    signalled = sum(group.sources * _signals(group, means) for group in groups)
    left = max(means.requests_per_hour - signalled, EXPLORED_SHARE * means.requests_per_hour)
    sources = sum(group.sources for group in groups)
    promised = min(means.max_age, sources / (EXPLORED_SHARE * left)) if sources else means.max_age
    needed = _planned(groups, means, promised, HIGHEST_PRICE)
    broken = needed > left
    kept_age = _kept_age(groups, means, left) if broken else promised
    price = _price(groups, means, kept_age, left)
    return Outlook(
        kept_age=kept_age,
        promise_broken=broken,
        price=price,
        freshness=sum(g.sources * _freshness(g, means, kept_age, price) for g in groups) / sources if sources else 1.0,
        signalled_per_hour=signalled,
        planned_per_hour=_planned(groups, means, kept_age, price),
        needed_per_hour=signalled + needed,
    )


def fetch_age(group: Group, means: Means, price: float) -> float:
    """The age at which a source's value reaches the price, on average at the look after it."""
    u = price * group.rate / group.weight
    # The root of x - 1 + exp(-x) = u: an approximation that is right within 1 %, and one step of Newton's.
    x = u + 1.0 - math.exp(-min(math.sqrt(2.0 * u) + u / 3.0, MOST_EXPECTED))
    x -= (_staleness(x, FLOATS) - u) / max(1.0 - math.exp(-min(x, MOST_EXPECTED)), 1e-9)
    least = -math.log(1.0 - min(means.min_chance, 0.99))
    return max(x, least) / _hidden_rate(group) + means.look_hours / 2


def _signals(group: Group, means: Means) -> float:
    """Fetches per hour that the listing causes for one source: at most one at each look."""
    if not _is_listened_to(group):
        return 0.0
    rate = group.seen.shown * group.rate + group.seen.false_rate
    return rate / (1.0 + rate * means.look_hours)


def _is_listened_to(group: Group) -> bool:
    return is_believed(Source(group.rate, 0.0, 1.0), group.seen)


def _hidden_rate(group: Group) -> float:
    """Changes per hour that no signal brings to light."""
    return group.rate * (1.0 - group.seen.shown) if _is_listened_to(group) else group.rate


def _planned(groups: Sequence[Group], means: Means, kept_age: float, price: float) -> float:
    """Fetches per hour by age or value."""
    return sum(_planned_each(group, means, min(kept_age, fetch_age(group, means, price))) for group in groups)


def _planned_each(group: Group, means: Means, age: float) -> float:
    """Fetches per hour at that age, where signals may come first."""
    signals = _signals(group, means)
    if signals * age < 1e-6:
        return group.sources / age
    left = math.exp(-min(signals * age, MOST_EXPECTED))
    return group.sources * signals * left / (1.0 - left)


def _price(groups: Sequence[Group], means: Means, kept_age: float, left: float) -> float:
    """The lowest price that the requests left can pay."""
    return _lowest(lambda price: _planned(groups, means, kept_age, price) <= left, LOWEST_PRICE, HIGHEST_PRICE)


def _kept_age(groups: Sequence[Group], means: Means, left: float) -> float:
    """The age for which the share of the oldest is enough while the rest goes by value."""

    def is_kept(age: float) -> bool:
        def fits(price: float) -> bool:
            by_value = [(group, fetch_age(group, means, price)) for group in groups]
            return sum(_planned_each(g, means, own) for g, own in by_value if own < age) <= (1.0 - OLDEST_SHARE) * left

        price = _lowest(fits, LOWEST_PRICE, HIGHEST_PRICE)
        oldest = [group for group in groups if fetch_age(group, means, price) >= age]
        return sum(_planned_each(group, means, age) for group in oldest) <= OLDEST_SHARE * left

    return _lowest(is_kept, means.max_age, 100.0 * 365 * 24)


def _freshness(group: Group, means: Means, kept_age: float, price: float) -> float:
    """The share of time in which a source is as stored: no hidden change since its fetch, no shown one since a look."""
    age = min(kept_age, fetch_age(group, means, price))
    signals, hidden = _signals(group, means), _hidden_rate(group)
    fresh = _mean_decay(signals + hidden, age) / _mean_decay(signals, age)
    return fresh / (1.0 + (group.rate - hidden) * means.look_hours / 2)


def _mean_decay(rate: float, hours: float) -> float:
    """The mean of exp(-rate t) over the hours."""
    x = rate * hours
    return 1.0 - x / 2.0 if x < 1e-6 else (1.0 - math.exp(-min(x, MOST_EXPECTED))) / x


def _lowest(is_enough: Callable[[float], bool], low: float, high: float) -> float:
    """The lowest number between two that is enough, by bisection of its logarithm."""
    if is_enough(low):
        return low
    for _ in range(40):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def _clamped(x: float, low: float, high: float, arithmetic: Arithmetic) -> float:
    return arithmetic.minimum(arithmetic.maximum(x, low), high)
