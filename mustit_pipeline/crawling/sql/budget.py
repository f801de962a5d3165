"""What requests were spent on, how often sellers are looked at, and which have the oldest or least fresh sources."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, CursorResult, text

from mustit_pipeline.crawling.sql.expressions import hours_between
from mustit_pipeline.crawling.sql.recrawl_terms import (
    ACTIVE,
    INTERVAL_HOURS,
    RATE,
    RATE_STEPS,
    SEEN,
    evidence_of_kinds,
)
from mustit_pipeline.crawling.sql.tables import BY_CREATION
from mustit_pipeline.domain.recrawl.learning import HIGHEST_SHOWN, LOWEST_RATE, LOWEST_SHOWN
from mustit_pipeline.domain.recrawl.outlook import Group
from mustit_pipeline.domain.recrawl.pool import LEAST_LOOK_HOURS
from mustit_pipeline.domain.recrawl.worth import Listing

# A seller that is looked at clearly more often than its interval says has light crawls.
LIGHT_SHARE = 0.9
# Signals of the other source that are rarer than this make no difference.
RAREST_OTHER = 1e-4


@dataclass(frozen=True, slots=True)
class AnotherInterval:
    """What if sellers were crawled so often, or only this one?"""

    hours: float
    seller_id: str | None = None


@dataclass(frozen=True, slots=True)
class Looks:
    """How often all sellers are looked at, and what that takes.

    `pages` are the listing pages of one look at every seller. Per hour are those of all looks, those of looks that are
    due alone, and the requests of due crawls that fetch everything.
    """

    look_hours: float
    pages: float
    pages_per_hour: float
    due_pages_per_hour: float
    everything: float
    everything_per_hour: float
    interval_hours: float
    longest_interval: float


@dataclass(frozen=True, slots=True)
class Ranked:
    """The first of all sellers in some order, and how many there are."""

    seller_ids: tuple[str, ...]
    number: int


@dataclass(frozen=True, slots=True)
class SellerProfile:
    """A seller, the age of its oldest source, how often it is looked at, and its sources by how they behave."""

    seller_id: str
    products: int
    oldest_hours: float | None
    look_hours: float
    interval_hours: float
    pages: float
    groups: tuple[Group, ...]


@dataclass(frozen=True, slots=True)
class SourceClass:
    """Sources of sellers whose listings are about alike and which are looked at about as often."""

    shown: int
    false_rate: int
    other: int
    look: int

    @property
    def look_hours(self) -> float:
        return 2.0**self.look

    def group(self, step: int) -> Group:
        """One source of the class with the change rate of a step."""
        shown = min(max(self.shown / 4, LOWEST_SHOWN), HIGHEST_SHOWN)
        return Group(1.0, _rate(step), 1.0, Listing(shown, 10.0**self.false_rate), 4.0**self.other)


_SPENT = text(f"""
    SELECT coalesce(sum(requests), 0) FROM crawling_schedule_executions WHERE created_at >= :since AND {BY_CREATION}
""")

# Light crawls go on as often as before under another interval: a due crawl only takes the place of one.
_IS_ANOTHER = "CAST(:hours AS float8) IS NOT NULL AND (CAST(:only AS text) IS NULL OR s.seller_id = :only)"
_EVERY = f"CASE WHEN {_IS_ANOTHER} THEN CAST(:hours AS float8) ELSE {INTERVAL_HOURS} END"
_LOOK = f"""greatest({LEAST_LOOK_HOURS}, CASE
    WHEN r.swept_at IS NULL THEN {_EVERY}
    WHEN NOT ({_IS_ANOTHER}) THEN r.look_hours
    WHEN r.look_hours < {LIGHT_SHARE} * {INTERVAL_HOURS} THEN least(CAST(:hours AS float8), r.look_hours)
    ELSE CAST(:hours AS float8) END)"""
_PRODUCTS = "CASE WHEN r.swept_at IS NULL THEN s.total_product_count ELSE r.products END"
_PAGES = f"(1 + ceil({_PRODUCTS} / CAST(:page_size AS float8)))"

_LOOKS = text(f"""
    SELECT coalesce(sum(products * look) FILTER (WHERE known) / nullif(sum(products) FILTER (WHERE known), 0),
                    {LEAST_LOOK_HOURS}) AS look_hours,
           coalesce(sum(pages), 0) AS pages, coalesce(sum(pages / look), 0) AS pages_per_hour,
           coalesce(sum(pages / every), 0) AS due_pages_per_hour,
           CAST(coalesce(sum(pages + 2 * products), 0) AS float8) AS everything,
           coalesce(sum((pages + 2 * products) / every), 0) AS everything_per_hour,
           coalesce(sum(products * every) / nullif(sum(products), 0), 24) AS interval_hours,
           coalesce(max(every), 24) AS longest_interval
    FROM (SELECT {_PRODUCTS} AS products, {_PAGES} AS pages, {_EVERY} AS every, {_LOOK} AS look,
                 r.swept_at IS NOT NULL AS known
          FROM sellers s LEFT JOIN recrawl_sellers r ON r.seller_id = s.seller_id WHERE {ACTIVE}) AS seller
""")

_SWEPT = f"{ACTIVE} AND r.swept_at IS NOT NULL AND r.products > 0"

# One narrow row for each seller.
_OLDEST = text(f"""
    SELECT r.seller_id, count(*) OVER () AS number FROM recrawl_sellers r JOIN sellers s ON s.seller_id = r.seller_id
    WHERE {_SWEPT} ORDER BY r.oldest_at, r.seller_id LIMIT :limit
""")

_KINDS = f"""
    SELECT r.seller_id, k.rates, l.look, {SEEN.shown} AS shown, {SEEN.false_rate} AS false_rate,
           sum({SEEN.shown} * {RATE}) OVER (PARTITION BY r.seller_id) - {SEEN.shown} * {RATE} AS other
    FROM recrawl_sellers r JOIN sellers s ON s.seller_id = r.seller_id
    CROSS JOIN LATERAL (SELECT {_LOOK} AS look OFFSET 0) AS l
    CROSS JOIN LATERAL {evidence_of_kinds("rates")}
    WHERE {_SWEPT}"""
_CLASSED = f"""
    kinds AS MATERIALIZED ({_KINDS}
    ), classed AS MATERIALIZED (
        SELECT seller_id, rates, CAST(round(shown * 4) AS int) AS shown,
               CAST(round(log(false_rate)) AS int) AS false_rate,
               CAST(round(ln(greatest(other, {RAREST_OTHER})) / ln(CAST(4 AS float8))) AS int) AS other,
               CAST(round(ln(look) / ln(CAST(2 AS float8))) AS int) AS look
        FROM kinds
    )"""

_CLASSES = text(f"WITH {_CLASSED} SELECT DISTINCT shown, false_rate, other, look FROM classed")

# What each class's sources keep fresh is given by step of their rate, one class after another.
_LEAST_FRESH = text(f"""
    WITH {_CLASSED}, classes AS MATERIALIZED (
        SELECT * FROM unnest(CAST(:shown AS int[]), CAST(:false_rate AS int[]), CAST(:other AS int[]),
                             CAST(:look AS int[])) WITH ORDINALITY AS c(shown, false_rate, other, look, no)
    ), fresh AS (
        SELECT k.seller_id, sum(step.number * (CAST(:fresh AS float8[]))[(c.no - 1) * {RATE_STEPS} + step.no])
                            / sum(step.number) AS share
        FROM classed k
        JOIN classes c ON c.shown = k.shown AND c.false_rate = k.false_rate AND c.other = k.other AND c.look = k.look
        CROSS JOIN LATERAL unnest(k.rates) WITH ORDINALITY AS step(number, no)
        WHERE step.number > 0 GROUP BY k.seller_id
    )
    SELECT seller_id, count(*) OVER () AS number FROM fresh ORDER BY share, seller_id LIMIT :limit
""")

_PROFILES = text(f"""
    SELECT r.seller_id, {_PRODUCTS} AS products, {hours_between("r.oldest_at", ":now")} AS oldest_hours,
           {_LOOK} AS look_hours, {_EVERY} AS interval_hours, {_PAGES} AS pages, k.rates, k.shown, k.false_rate,
           greatest(k.other, 0) AS other
    FROM unnest(CAST(:seller_ids AS text[])) WITH ORDINALITY AS w(seller_id, place)
    JOIN recrawl_sellers r ON r.seller_id = w.seller_id
    JOIN sellers s ON s.seller_id = r.seller_id
    CROSS JOIN LATERAL (
        SELECT k.rates, {SEEN.shown} AS shown, {SEEN.false_rate} AS false_rate,
               sum({SEEN.shown} * {RATE}) OVER () - {SEEN.shown} * {RATE} AS other
        FROM {evidence_of_kinds("rates")}) AS k
    ORDER BY w.place
""")


def spent(connection: Connection, since: datetime) -> int:
    """The requests of crawls that were opened since then."""
    return int(connection.execute(_SPENT, {"since": since}).scalar_one())


def looks(connection: Connection, page_size: int, instead: AnotherInterval | None = None) -> Looks:
    """How often sellers are looked at, or would be under another interval."""
    return Looks(*connection.execute(_LOOKS, {"page_size": page_size, **_interval(instead)}).one())


def oldest(connection: Connection, limit: int) -> Ranked:
    """The sellers whose sources were oldest when their last crawl had ended."""
    return _ranked(connection.execute(_OLDEST, {"limit": limit}))


def classes(connection: Connection, instead: AnotherInterval | None = None) -> list[SourceClass]:
    """The classes that the sellers' sources fall into: few, however many sellers there are."""
    return [SourceClass(*row) for row in connection.execute(_CLASSES, _interval(instead))]


def least_fresh(
    connection: Connection,
    found: Sequence[SourceClass],
    fresh: Sequence[float],
    limit: int,
    instead: AnotherInterval | None = None,
) -> Ranked:
    """The sellers with the least fresh sources, by what is fresh of each class and step of rate."""
    values = {
        "shown": [one.shown for one in found],
        "false_rate": [one.false_rate for one in found],
        "other": [one.other for one in found],
        "look": [one.look for one in found],
        "fresh": list(fresh),
        "limit": limit,
        **_interval(instead),
    }
    return _ranked(connection.execute(_LEAST_FRESH, values))


def profiles(
    connection: Connection,
    seller_ids: Sequence[str],
    now: datetime,
    page_size: int,
    instead: AnotherInterval | None = None,
) -> list[SellerProfile]:
    """Sellers in this order; one that was never looked at is left out."""
    values = {"seller_ids": list(seller_ids), "now": now, "page_size": page_size, **_interval(instead)}
    found: dict[str, SellerProfile] = {}
    for row in connection.execute(_PROFILES, values):
        groups = tuple(
            Group(float(number), _rate(step), 1.0, Listing(row.shown, row.false_rate), row.other)
            for step, number in enumerate(row.rates, start=1)
            if number
        )
        before = found[row.seller_id].groups if row.seller_id in found else ()
        found[row.seller_id] = SellerProfile(
            row.seller_id,
            row.products,
            row.oldest_hours,
            row.look_hours,
            row.interval_hours,
            row.pages,
            before + groups,
        )
    return list(found.values())


def _rate(step: int) -> float:
    return LOWEST_RATE * 2 ** (step - 0.5)


def _interval(instead: AnotherInterval | None) -> dict[str, object]:
    return {"hours": None, "only": None} if instead is None else {"hours": instead.hours, "only": instead.seller_id}


def _ranked(result: CursorResult[Any]) -> Ranked:
    found = result.all()
    return Ranked(tuple(row.seller_id for row in found), found[0].number if found else 0)
