"""Which sources a crawl fetches, in which order, and when the oldest of them have to be fetched."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from mustit_pipeline.domain.recrawl.arithmetic import FLOATS, clamped

PROMISE_HEADROOM = 2.0
PROMISE_MARGIN = 0.05


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
    return clamped(share, each_once, PROMISE_HEADROOM * each_once, FLOATS)
