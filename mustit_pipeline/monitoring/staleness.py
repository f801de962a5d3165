"""The share of products that are stale, as a uniform sample shows it: by source, and by the size of the seller.

Every published product of an active seller is as likely to be drawn as any other, whatever the recrawl policy fetches.
The sample stores no body and teaches the policy nothing: a product that was drawn is crawled as if it had not been, or
the drawn ones would be fresher than the rest.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from random import Random

from sqlalchemy import Connection

from mustit_pipeline.domain.sampling import wilson_interval
from mustit_pipeline.tallies.sql import tallies
from mustit_pipeline.tallies.sql.tallies import Labels, Subject

DAY_HOURS = 24
# Of all products in a day; and of the pool's requests at most.
DAILY_SHARE = 0.01
REQUESTS_SHARE = 0.05
REQUESTS_OF_PRODUCT = 2


class SellerSize(StrEnum):
    """How many products a seller lists: fewer than 100, fewer than 1,000, or more."""

    SMALL = "SMALL"
    MEDIUM = "MEDIUM"
    LARGE = "LARGE"

    @classmethod
    def of(cls, products: int) -> "SellerSize":
        """The size of a seller of so many products."""
        if products < MEDIUM_FROM:
            return cls.SMALL
        return cls.MEDIUM if products < LARGE_FROM else cls.LARGE


MEDIUM_FROM, LARGE_FROM = 100, 1000


class Sampled(StrEnum):
    """What was compared: the product as a whole, or one source; the listing's is whether the product is still there."""

    PRODUCT = "PRODUCT"
    DETAIL = "DETAIL"
    OPTIONS = "OPTIONS"
    LISTING = "LISTING"


class Result(StrEnum):
    """How it compared; without an answer of the marketplace it says nothing."""

    FRESH = "FRESH"
    STALE = "STALE"
    UNANSWERED = "UNANSWERED"


@dataclass(frozen=True, slots=True)
class Comparison:
    """A drawn product: how many products its seller has, and which sources were stale; None without an answer."""

    seller_products: int
    stale: frozenset[Sampled] | None

    def labels(self) -> Iterable[Labels]:
        """What is counted of it."""
        size = SellerSize.of(self.seller_products)
        if self.stale is None:
            yield Sampled.PRODUCT.value, size.value, Result.UNANSWERED.value
            return
        yield Sampled.PRODUCT.value, size.value, _result(bool(self.stale))
        yield Sampled.LISTING.value, size.value, _result(Sampled.LISTING in self.stale)
        # Of a product that is gone there is neither.
        if Sampled.LISTING not in self.stale:
            for source in (Sampled.DETAIL, Sampled.OPTIONS):
                yield source.value, size.value, _result(source in self.stale)


@dataclass(frozen=True, slots=True)
class Share:
    """How many were compared, and how many of them were stale."""

    compared: int = 0
    stale: int = 0
    unanswered: int = 0

    @property
    def ratio(self) -> float:
        return self.stale / self.compared if self.compared else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """Between which shares the true one lies with 95 % certainty."""
        return wilson_interval(self.stale, self.compared)

    def __add__(self, other: "Share") -> "Share":
        return Share(self.compared + other.compared, self.stale + other.stale, self.unanswered + other.unanswered)


Shares = Mapping[tuple[Sampled, SellerSize], Share]


def sample_size(products: int, requests_per_hour: float, least: int, chance: Random) -> int:
    """How many products are drawn in an hour: 1 % a day, at least so many, and never much of the pool's requests."""
    daily = products * DAILY_SHARE / DAY_HOURS
    affordable = requests_per_hour * REQUESTS_SHARE / REQUESTS_OF_PRODUCT
    wanted = min(max(daily, float(least)), max(affordable, 1.0))
    # A part of a product is drawn in that part of all hours.
    return int(wanted) + (chance.random() < wanted % 1)


def record(connection: Connection, compared: Iterable[Comparison]) -> None:
    """Count how drawn products compared."""
    numbers = Counter(labels for one in compared for labels in one.labels())
    tallies.count(connection, Subject.SAMPLE, numbers)


def shares(connection: Connection, since: datetime, until: datetime) -> Shares:
    """How the products compared that were drawn in these hours, by source and size; each of them is there."""
    found = {(source, size): Share() for source in Sampled for size in SellerSize}
    for of_hour in tallies.hours(connection, Subject.SAMPLE, since, until).values():
        for (source, size, result), counted in of_hour.items():
            key, number = (Sampled(source), SellerSize(size)), counted.number
            if result == Result.UNANSWERED:
                found[key] += Share(unanswered=number)
            else:
                found[key] += Share(number, number if result == Result.STALE else 0)
    return found


def of_source(found: Shares, source: Sampled) -> Share:
    """One source of all sellers."""
    return sum((share for (its, _), share in found.items() if its is source), Share())


def of_size(found: Shares, size: SellerSize) -> Share:
    """The products of sellers of one size."""
    return found[Sampled.PRODUCT, size]


def _result(stale: bool) -> str:
    return (Result.STALE if stale else Result.FRESH).value
