"""What the pool's requests keep: the age, the price, and the expected share of sources that are fresh."""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from mustit_pipeline.domain.recrawl.arithmetic import MOST_EXPECTED
from mustit_pipeline.domain.recrawl.learning import HALF_LIFE_HOURS
from mustit_pipeline.domain.recrawl.pool import LOWEST_PRICE, PRICES
from mustit_pipeline.domain.recrawl.worth import (
    STALENESS_SHARE,
    Listing,
    Source,
    gain,
    is_believed,
    unseen_changes,
    value,
)

# However long the promise is, so much of the pool goes round by age, once in a half-life at most: a rate that is
# believed too low is found out.
EXPLORED_SHARE = 0.1
# The oldest get so much of what new and signalled products leave, where the promise cannot be kept.
OLDEST_SHARE = 0.5
AGE_FOLLOWS_HOURS = 72.0


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
