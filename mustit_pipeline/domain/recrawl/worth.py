"""What a fetch of a source is worth: how likely an unseen change is, and how long the source then stays fresh."""

from dataclasses import dataclass

from mustit_pipeline.domain.recrawl.arithmetic import FLOATS, MOST_EXPECTED, Arithmetic

SOLD_OUT_WEIGHT = 0.5
RECENTLY_CHANGED_WEIGHT = 1.5
RECENT_HOURS = 24.0
STALENESS_SHARE = 0.02
BELIEVED_CHANCE = 0.1


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
