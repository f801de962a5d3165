"""The recrawl policy: which sources of which products are worth a request, and the age that a budget keeps.

A source is the detail or the options of one product. Times are hours, rates are events per hour. The formulas are
written for an `Arithmetic`, so that floats, arrays and SQL expressions go through the same code; no exponent exceeds
`MOST_EXPECTED`, because PostgreSQL raises an error where a double would underflow.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Protocol

# A source's own evidence counts beside half a change at its seller's mean rate: rates differ by orders of magnitude.
PRIOR_SHAPE = 0.5
# A seller's first days: a change in ten days for each source.
PRIOR_CHANGES = 2.0
PRIOR_HOURS = 480.0
# The listing is taken to show half of the changes, and believed until fetches disprove it.
PRIOR_LISTED_CHANGES = 2.0
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
STALENESS_SHARE = 0.02

BELIEVED_CHANCE = 0.1
# However long the promise is, so much of the pool goes round by age, once in a half-life at most: a rate that is
# believed too low is found out.
EXPLORED_SHARE = 0.1
# The oldest get so much of what new and signalled products leave, where the promise cannot be kept.
OLDEST_SHARE = 0.5

PROMISE_HEADROOM = 2.0
PROMISE_MARGIN = 0.05
AGE_FOLLOWS_HOURS = 72.0

PRICES = LOWEST_PRICE, HIGHEST_PRICE = 1e-6, 1e4
PRICE_GAIN = 0.1
MOST_EXCESS = 10.0
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


class FloatArithmetic:
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


FLOATS = FloatArithmetic()


@dataclass(frozen=True, slots=True)
class Evidence:
    """Changes of one source in so many hours, older ones forgotten in part."""

    changes: float = 0.0
    hours: float = 0.0


@dataclass(frozen=True, slots=True)
class SellerEvidence:
    """What fetches said of a seller's sources of one kind, older ones forgotten in part; or what one fetch says.

    Expected changes are those of the believed rates in the same hours, so that the share which the listing shows is
    compared for the same sources. Quiet are fetches without a signal: only these show how much the listing hides.
    """

    changes: float = 0.0
    hours: float = 0.0
    expected_changes: float = 0.0
    shown_changes: float = 0.0
    quiet_expected: float = 0.0
    quiet_changes: float = 0.0
    false_signals: float = 0.0


@dataclass(frozen=True, slots=True)
class Listing:
    """How far a seller's listing can be trusted for one kind of source."""

    shown: float
    false_rate: float


@dataclass(frozen=True, slots=True)
class Source:
    """A source at the time of a look: its change rate, hours since its last fetch, and signals of the listing since.

    A signal may come from the product's other source, which changes so often in a way that the listing shows.
    """

    rate: float
    age: float
    signals: float
    other_shown_rate: float = 0.0


def seller_rate(evidence: SellerEvidence, arithmetic: Arithmetic = FLOATS) -> float:
    """The mean change rate of a seller's sources of one kind; a usual one for a seller's first days."""
    rate = (PRIOR_CHANGES + evidence.changes) / (PRIOR_HOURS + evidence.hours)
    return _clamped(rate, LOWEST_RATE, HIGHEST_RATE, arithmetic)


def source_rate(evidence: Evidence, prior: float, arithmetic: Arithmetic = FLOATS) -> float:
    """The change rate of one source: the mean of a Gamma distribution around its seller's rate."""
    rate = (PRIOR_SHAPE + evidence.changes) / (PRIOR_SHAPE / prior + evidence.hours)
    return _clamped(rate, LOWEST_RATE, HIGHEST_RATE, arithmetic)


def listing(evidence: SellerEvidence, arithmetic: Arithmetic = FLOATS) -> Listing:
    """The share of changes that the listing shows, and how often it signals a change that is none."""
    shows = (PRIOR_LISTED_CHANGES + evidence.shown_changes) / (2.0 * PRIOR_LISTED_CHANGES + evidence.expected_changes)
    hides = (PRIOR_LISTED_CHANGES + evidence.quiet_changes) / (2.0 * PRIOR_LISTED_CHANGES + evidence.quiet_expected)
    false_rate = (PRIOR_FALSE_SIGNALS + evidence.false_signals) / (PRIOR_WATCHED_HOURS + evidence.hours)
    return Listing(
        _clamped(shows / (shows + hides), LOWEST_SHOWN, HIGHEST_SHOWN, arithmetic),
        _clamped(false_rate, LOWEST_FALSE_RATE, HIGHEST_FALSE_RATE, arithmetic),
    )


def signalled_changes(source: Source, seen: Listing, arithmetic: Arithmetic = FLOATS) -> float:
    """What the listing's signals add to the expected number of unseen changes."""
    other = seen.false_rate + source.other_shown_rate
    added = source.signals * arithmetic.log(1.0 + seen.shown * source.rate / other)
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


def fetched_evidence(source: Source, seen: Listing, changed: float, arithmetic: Arithmetic = FLOATS) -> SellerEvidence:
    """What one unconditional fetch says; `changed` is 1 or 0. A seller's evidence grows by the sum over its fetches.

    Where something changed, the changes are counted as expected under what is believed: hidden ones by the age, shown
    ones by the signals, given that there was at least one.
    """
    other = seen.false_rate + source.other_shown_rate
    true_share = seen.shown * source.rate / (seen.shown * source.rate + other)
    chance = change_chance(unseen_changes(source, seen, arithmetic), arithmetic)
    # A change right after a fetch, which nothing announced, is one hidden change; and no division by nothing.
    expects = chance > 1e-6
    certain = arithmetic.maximum(chance, 1e-6)
    expected = source.rate * source.age
    shown = changed * arithmetic.where(expects, source.signals * true_share / certain, 0.0)
    hidden = changed * arithmetic.where(expects, (1.0 - seen.shown) * expected / certain, 1.0)
    quiet = source.signals < 0.5
    return SellerEvidence(
        changes=shown + hidden,
        hours=source.age,
        expected_changes=expected,
        shown_changes=shown,
        quiet_expected=arithmetic.where(quiet, expected, 0.0),
        quiet_changes=arithmetic.where(quiet, hidden, 0.0),
        false_signals=arithmetic.maximum(source.signals - shown, 0.0) * seen.false_rate / other,
    )


def learnt(before: Evidence, fetched: SellerEvidence, kept: float) -> Evidence:
    """The evidence of a source after a fetch, with the share of the older evidence that is kept."""
    return Evidence(before.changes * kept + fetched.changes, before.hours * kept + fetched.hours)


def learnt_of_seller(before: SellerEvidence, fetched: SellerEvidence, kept: float) -> SellerEvidence:
    """The evidence of a seller after fetches, with the share of the older evidence that is kept."""
    return SellerEvidence(
        changes=before.changes * kept + fetched.changes,
        hours=before.hours * kept + fetched.hours,
        expected_changes=before.expected_changes * kept + fetched.expected_changes,
        shown_changes=before.shown_changes * kept + fetched.shown_changes,
        quiet_expected=before.quiet_expected * kept + fetched.quiet_expected,
        quiet_changes=before.quiet_changes * kept + fetched.quiet_changes,
        false_signals=before.false_signals * kept + fetched.false_signals,
    )


def weight(in_stock: bool, hours_since_change: float, boost: float = 1.0, arithmetic: Arithmetic = FLOATS) -> float:
    """How much a product counts: less when sold out, more after a recent change, times an operator's boost."""
    stock = arithmetic.where(in_stock, 1.0, SOLD_OUT_WEIGHT)
    return boost * stock * arithmetic.where(hours_since_change <= RECENT_HOURS, RECENTLY_CHANGED_WEIGHT, 1.0)


def value(unseen: float, rate: float, weight: float, cost: float = 1.0, arithmetic: Arithmetic = FLOATS) -> float:
    """What a fetch is worth per request: the hours of freshness that it is expected to bring, weighted."""
    return weight / (cost * rate) * gain(unseen, arithmetic)


def gain(unseen: float, arithmetic: Arithmetic = FLOATS) -> float:
    """What a fetch brings, in mean times between two changes of the source, by the unseen changes x that it expects.

    1 - (1 + x) exp(-x) is the index of greatest freshness. It hardly grows where x is large, so that sources which
    change all the time would never be fetched; a little of x - 1 + exp(-x), the index of least time stale, orders them.
    """
    x, decay = unseen, arithmetic.exp(-unseen)
    freshness = 1.0 - (1.0 + x) * decay
    staleness = x - 1.0 + decay
    # By their series where the differences would lose their digits.
    freshness = arithmetic.where(x < 1e-3, x * x * (0.5 - x / 3.0 + x * x / 8.0), freshness)
    staleness = arithmetic.where(x < 1e-3, x * x * (0.5 - x / 6.0 + x * x / 24.0), staleness)
    return freshness + STALENESS_SHARE * staleness


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
    # Until the seller is looked at again.
    look_hours: float
    # Requests per hour that the seller can count on for its oldest sources.
    promise_rate: float
    min_chance: float


class Reason(IntEnum):
    """Why a source is fetched, in the order in which requests are spent."""

    NEW = 1
    # About to break the promise, because signals took what was meant for the oldest.
    LATE = 2
    SIGNALLED = 3
    AGE = 4
    VALUE = 5


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
        by_age = reason in (Reason.LATE, Reason.AGE)
        of_reason = [one for its_reason, one in wanted if its_reason is reason]
        of_reason.sort(key=lambda one: (-(one.age or 0.0) if by_age else -one.value, one.key))
        turn = Reason.AGE if terms.promise_broken and reason is Reason.VALUE else reason
        ordered += [((turn, rank), Choice(one.key, reason)) for rank, one in enumerate(of_reason)]
    ordered.sort(key=lambda placed: placed[0])
    return [choice for _, choice in ordered[: max(0, terms.allowance)]]


def _reason(one: Candidate, terms: Terms, *, too_old: bool) -> Reason | None:
    if one.age is None:
        return Reason.NEW
    if one.age >= fetched_before(terms.kept_age) and not terms.promise_broken:
        return Reason.LATE
    worth = one.value >= terms.price and one.chance >= terms.min_chance
    if worth and one.believed:
        return Reason.SIGNALLED
    if too_old:
        return Reason.AGE
    return Reason.VALUE if worth else None


def _too_old(candidates: Sequence[Candidate], terms: Terms) -> set[int]:
    """The oldest sources, so many that no later one passes the kept age while the promise's requests reach it."""
    aged = sorted((-one.age, one.key) for one in candidates if one.age is not None)
    latest = fetched_before(terms.kept_age) - terms.look_hours
    slack = [max(0.0, latest + age) for age, _ in aged]
    needed = max((rank - terms.promise_rate * hours for rank, hours in enumerate(slack, start=1)), default=0.0)
    return {key for _, key in aged[: max(0, math.ceil(needed))]}


def fetched_before(kept_age: float) -> float:
    """The age before which a source is fetched; the rest of the kept age is for a busy pool."""
    return (1.0 - PROMISE_MARGIN) * kept_age


def hours_until_due(interval: float, hours: float, kept_age: float, oldest_age: float) -> float:
    """When a seller is due, so many hours after its last look: by its interval, or earlier for its oldest source."""
    return min(interval - hours, fetched_before(kept_age) - oldest_age)


def promise_rate(sources: float, kept_age: float, share: float) -> float:
    """Requests per hour for a seller's oldest sources: its share of the pool, and at most twice what the promise takes.

    The oldest are so fetched early and evenly, and not all at the last moment, when they were first fetched together.
    """
    each_once = sources / kept_age
    return _clamped(share, each_once, PROMISE_HEADROOM * each_once, FLOATS)


def moved_price(price: float, wanted: float, affordable: float, hours: float) -> float:
    """The pool's price after some hours in which crawls planned so many requests and could afford so many."""
    excess = _clamped(wanted / max(affordable, 1.0) - 1.0, -1.0, MOST_EXCESS, FLOATS)
    return _clamped(price * math.exp(PRICE_GAIN * min(hours, 24.0) * excess), LOWEST_PRICE, HIGHEST_PRICE, FLOATS)


def sweep_value(sources: float, rate: float, shown: float, hours: float, arithmetic: Arithmetic = FLOATS) -> float:
    """What a sweep brings after so many hours for the sources of one kind, in the measure of `value`."""
    visible = shown * rate
    return sources / visible * gain(arithmetic.minimum(visible * hours, MOST_EXPECTED), arithmetic)


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
    """Sources that are alike: how many, their weight, change rate and listing, and their products' other sources."""

    sources: float
    rate: float
    weight: float
    seen: Listing
    other_shown_rate: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What the pool has: requests per hour without listing pages and new products, and hours between two looks."""

    requests_per_hour: float
    look_hours: float
    max_age: float
    min_chance: float


@dataclass(frozen=True, slots=True)
class Outlook:
    """What these means keep; requests per hour that are expected, and that the promise alone needs."""

    kept_age: float
    promise_broken: bool
    price: float
    freshness: float
    per_hour: float
    needed: float


def outlook(groups: Sequence[Group], means: Means) -> Outlook:
    """The age that is kept, the price, and the expected share of sources that are fresh."""
    sources = sum(group.sources for group in groups)
    if not sources:
        return Outlook(means.max_age, promise_broken=False, price=LOWEST_PRICE, freshness=1.0, per_hour=0.0, needed=0.0)
    explored = max(HALF_LIFE_HOURS, sources / (EXPLORED_SHARE * means.requests_per_hour))
    promised = min(means.max_age, explored)
    needed = sources / promised
    broken = needed > means.requests_per_hour
    kept_age = _kept_age(groups, means) if broken else promised
    price = _lowest(lambda price: _per_hour(groups, means, kept_age, price) <= means.requests_per_hour, *PRICES)
    per_hour = _per_hour(groups, means, kept_age, price)
    told = Outlook(kept_age, promise_broken=broken, price=price, freshness=1.0, per_hour=per_hour, needed=needed)
    return replace(told, freshness=freshness_of(groups, means, told))


def moved_age(kept_age: float, told: Outlook, hours: float) -> float:
    """The age that is kept so many hours later: it follows an outlook that breaks the promise only slowly."""
    followed = 1.0 - math.exp(-min(hours / AGE_FOLLOWS_HOURS, MOST_EXPECTED))
    return kept_age + followed * (told.kept_age - kept_age) if told.promise_broken else told.kept_age


def freshness_of(groups: Sequence[Group], means: Means, told: Outlook) -> float:
    """The expected share of these sources that are fresh, on the terms of an outlook."""
    sources = sum(group.sources for group in groups)
    fresh = sum(group.sources * _freshness(group, means, told.kept_age, told.price) for group in groups)
    return fresh / sources if sources else 1.0


def fetches_of(groups: Sequence[Group], means: Means, told: Outlook) -> float:
    """The fetches of these sources per hour that are expected on the terms of an outlook."""
    return _per_hour(groups, means, told.kept_age, told.price)


def freshness_by_interval(groups: Sequence[Group], hours: float) -> float:
    """The share of sources that are fresh where each is fetched once in so many hours."""
    sources = sum(group.sources for group in groups)
    fresh = sum(group.sources * _mean_decay(group.rate, hours) for group in groups)
    return fresh / sources if sources else 1.0


def fetch_age(group: Group, means: Means, price: float) -> float:
    """The age at which a source's value reaches the price, on average at the look after it."""
    unseen = max(_unseen_worth(price * group.rate / group.weight), -math.log(1.0 - min(means.min_chance, 0.99)))
    return unseen / _hidden_rate(group, price) + means.look_hours / 2


def _unseen_worth(wanted: float) -> float:
    """The unseen changes whose gain is as wanted, interpolated; far more than any where there are none."""
    above = bisect_left(_GAINS, wanted)
    if above == 0:
        return math.sqrt(2.0 * wanted / (1.0 + STALENESS_SHARE))
    if above == len(_GAINS):
        return 1e6
    low, high = above - 1, above
    part = math.log(wanted / _GAINS[low]) / math.log(_GAINS[high] / _GAINS[low])
    return _UNSEEN[low] * (_UNSEEN[high] / _UNSEEN[low]) ** part


_UNSEEN = [MOST_EXPECTED * 10.0 ** (-step / 50.0) for step in range(300, -1, -1)]
_GAINS = [gain(unseen) for unseen in _UNSEEN]


def _per_hour(groups: Sequence[Group], means: Means, kept_age: float, price: float) -> float:
    """Fetches per hour, for whatever reason."""
    ages = [min(kept_age, fetch_age(group, means, price)) for group in groups]
    planned = sum(_planned(group, means, price, age) for group, age in zip(groups, ages, strict=True))
    return planned + sum(group.sources * _signals(group, means, price) for group in groups)


def _signals(group: Group, means: Means, price: float) -> float:
    """Fetches per hour that the listing causes for one source: at most one at each look."""
    if not _is_listened_to(group, price):
        return 0.0
    rate = group.seen.shown * group.rate + group.seen.false_rate + group.other_shown_rate
    return rate / (1.0 + rate * means.look_hours)


def _is_listened_to(group: Group, price: float) -> bool:
    signalled = Source(group.rate, 0.0, 1.0, group.other_shown_rate)
    worth = value(unseen_changes(signalled, group.seen), group.rate, group.weight)
    return worth >= price and is_believed(signalled, group.seen)


def _hidden_rate(group: Group, price: float) -> float:
    """Changes per hour that no signal brings to light."""
    return group.rate * (1.0 - group.seen.shown) if _is_listened_to(group, price) else group.rate


def _planned(group: Group, means: Means, price: float, age: float) -> float:
    """Fetches per hour at that age, where signals may come first."""
    signals = _signals(group, means, price)
    if signals * age < 1e-6:
        return group.sources / age
    left = math.exp(-min(signals * age, MOST_EXPECTED))
    return group.sources * signals * left / (1.0 - left)


def _kept_age(groups: Sequence[Group], means: Means) -> float:
    """The age for which the share of the oldest is enough while the rest goes by value."""

    def halves(age: float, price: float) -> tuple[float, float]:
        """Fetches per hour by value and by age, as shares of what signals leave."""
        left = means.requests_per_hour - sum(group.sources * _signals(group, means, price) for group in groups)
        by_age = by_value = 0.0
        for group in groups:
            own = fetch_age(group, means, price)
            if own < age:
                by_value += _planned(group, means, price, own)
            else:
                by_age += _planned(group, means, price, age)
        return (by_value / left, by_age / left) if left > 0 else (math.inf, math.inf)

    def is_kept(age: float) -> bool:
        price = _lowest(lambda price: halves(age, price)[0] <= 1.0 - OLDEST_SHARE, *PRICES)
        return halves(age, price)[1] <= OLDEST_SHARE

    return _lowest(is_kept, means.max_age, 100.0 * 365 * 24)


def _freshness(group: Group, means: Means, kept_age: float, price: float) -> float:
    """The share of time in which a source is as stored: no hidden change since its fetch, no shown one since a look."""
    age = min(kept_age, fetch_age(group, means, price))
    signals, hidden = _signals(group, means, price), _hidden_rate(group, price)
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
    for _ in range(25):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def _clamped(x: float, low: float, high: float, arithmetic: Arithmetic) -> float:
    return arithmetic.minimum(arithmetic.maximum(x, low), high)
