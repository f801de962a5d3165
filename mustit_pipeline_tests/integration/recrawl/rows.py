"""What the recrawl policy knows, in random rows, and the same as the policy's own types."""

import math
import random
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, text

from mustit_pipeline.catalog.canonical import READING
from mustit_pipeline.domain.recrawl.learning import Evidence, SellerEvidence, listing, seller_rate, source_rate
from mustit_pipeline.domain.recrawl.worth import Listing, Source

KINDS = ("detail", "option")
EVIDENCE = tuple(each.name for each in fields(SellerEvidence))


def hours_between(earlier: datetime, later: datetime) -> float:
    return max(0.0, (later - earlier) / timedelta(hours=1))


@dataclass(frozen=True)
class KnownSeller:
    """A row of `recrawl_sellers`."""

    seller_id: str
    evidence: dict[str, SellerEvidence]
    learnt_at: datetime
    boost: float = 1.0

    def seen(self, kind: str) -> Listing:
        return listing(self.evidence[kind])

    def prior(self, kind: str) -> float:
        return seller_rate(self.evidence[kind])

    def store(self, connection: Connection) -> None:
        values: dict[str, Any] = {"seller_id": self.seller_id, "learnt_at": self.learnt_at, "boost": self.boost}
        for kind, evidence in self.evidence.items():
            values |= {f"{kind}_{name}": getattr(evidence, name) for name in EVIDENCE}
        insert(connection, "recrawl_sellers", values)


@dataclass(frozen=True)
class KnownProduct:
    """A row of `recrawl_products`."""

    seller: KnownSeller
    item_no: int
    fetched_at: dict[str, datetime | None]
    evidence: dict[str, Evidence]
    signals: dict[str, float]
    changed_at: datetime | None = None
    boost: float = 1.0
    sold_out: bool = False
    reading: int = READING

    def source(self, kind: str, now: datetime) -> Source:
        """Its detail or options; one that was never fetched has no age, and counts as fetched now."""
        fetched_at = self.fetched_at[kind]
        age = 0.0 if fetched_at is None else hours_between(fetched_at, now)
        other = KINDS[1 - KINDS.index(kind)]
        return Source(self.rate(kind), age, self.signals[kind], self.seller.seen(other).shown * self.rate(other))

    def rate(self, kind: str) -> float:
        return source_rate(self.evidence[kind], self.seller.prior(kind))

    def store(self, connection: Connection) -> None:
        values: dict[str, Any] = {
            "seller_id": self.seller.seller_id,
            "item_no": self.item_no,
            "changed_at": self.changed_at,
            "boost": self.boost,
            "sold_out": self.sold_out,
        }
        for kind in KINDS:
            values |= {
                f"{kind}_fetched_at": self.fetched_at[kind],
                f"{kind}_changes": self.evidence[kind].changes,
                f"{kind}_hours": self.evidence[kind].hours,
                f"{kind}_signals": self.signals[kind],
                f"{kind}_reading": self.reading,
            }
        insert(connection, "recrawl_products", values)


def insert(connection: Connection, table: str, values: dict[str, Any]) -> None:
    names = ", ".join(f":{name}" for name in values)
    connection.execute(text(f"INSERT INTO {table} ({', '.join(values)}) VALUES ({names})"), values)


def random_seller(chance: random.Random, seller_id: str, now: datetime) -> KnownSeller:
    def number() -> float:
        return chance.choice([0.0, 10 ** chance.uniform(-2, 4)])

    def evidence() -> SellerEvidence:
        return SellerEvidence(**{name: number() for name in EVIDENCE})

    learnt_at = now - timedelta(hours=10 ** chance.uniform(-3, 3))
    return KnownSeller(seller_id, {kind: evidence() for kind in KINDS}, learnt_at, chance.choice([1.0, 3.0]))


def random_product(chance: random.Random, seller: KnownSeller, item_no: int, now: datetime) -> KnownProduct:
    def moment(*, maybe: float = 0.1) -> datetime | None:
        hours = 10 ** chance.uniform(-4, 4)
        # Whole microseconds, as PostgreSQL keeps them.
        return None if chance.random() < maybe else now - timedelta(microseconds=math.floor(hours * 3.6e9))

    return KnownProduct(
        seller,
        item_no,
        {kind: moment() for kind in KINDS},
        {
            kind: Evidence(chance.choice([0.0, 10 ** chance.uniform(-3, 2)]), 10 ** chance.uniform(-2, 4))
            for kind in KINDS
        },
        {kind: float(chance.choice([0, 0, 0, 1, 2, 50])) for kind in KINDS},
        moment(maybe=0.5),
        chance.choice([1.0, 1.0, 0.5, 20.0]),
        chance.random() < 0.2,
    )
