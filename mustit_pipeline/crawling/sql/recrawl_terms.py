"""What the recrawl policy knows of sellers as a whole, and the terms on which all crawls spend the pool's requests."""

import math
from collections.abc import Collection
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, text

from mustit_pipeline.crawling.sql.choosing import BELIEVED, rated
from mustit_pipeline.crawling.sql.expressions import SQL, column, hours_between
from mustit_pipeline.crawling.sql.learning import EVIDENCE
from mustit_pipeline.crawling.sql.tables import LEARNT_KINDS, OPEN_EXECUTION
from mustit_pipeline.domain.recrawl.choosing import fetched_before
from mustit_pipeline.domain.recrawl.learning import HIGHEST_RATE, LOWEST_RATE, SellerEvidence, listing, seller_rate
from mustit_pipeline.domain.recrawl.outlook import Group
from mustit_pipeline.domain.recrawl.pool import LEAST_LOOK_HOURS, light_crawl_value, sweep_value
from mustit_pipeline.domain.recrawl.worth import Listing
from mustit_pipeline.domain.states import ScheduleStatus, SellerStatus

# Sources are counted by their change rate, in steps of a factor of two.
RATE_STEPS = math.ceil(math.log2(HIGHEST_RATE / LOWEST_RATE))
# How long light crawls leave alone what a look has not helped: a product whose task has failed, a seller for its sake.
FAILED_FOR = timedelta(hours=24)
# How far the last look moves the usual hours between two looks.
LOOK_GAIN = 0.2
ACTIVE = f"s.status = '{SellerStatus.ACTIVE.value}'"


@dataclass(frozen=True, slots=True)
class PoolTerms:
    """The pool's price and the age that it keeps, when that was judged, and what crawls have planned since."""

    price: float
    kept_age: float
    promise_broken: bool
    freshness: float
    requests_per_hour: float
    needed_per_hour: float
    sources: float
    judged_at: datetime
    planned: float = 0.0


@dataclass(frozen=True, slots=True)
class SellerLook:
    """When a seller was last looked at, the usual hours between two looks, and how many products it has."""

    swept_at: datetime | None
    look_hours: float
    interval_hours: float
    products: int


@dataclass(frozen=True, slots=True)
class Crowd:
    """All sources of active sellers by how they behave, and the hours between two looks at them."""

    groups: tuple[Group, ...]
    products: int
    look_hours: float


@dataclass(frozen=True, slots=True)
class LightCandidate:
    """A seller that a light crawl could look at: what that is worth per page, and the hours since the last look.

    Its oldest source counts as new where a look has not helped after it was late.
    """

    seller_id: str
    worth: float
    hours: float
    pages: int
    interval_hours: float
    oldest_hours: float


LIVE_PRODUCTS = """
        SELECT item_no FROM products
        WHERE seller_id = :seller_id AND deleted_at IS NULL AND foreign_at IS NULL AND absent_sweeps = 0"""


def _rates(kind: int) -> str:
    return f"""ARRAY(SELECT CAST(coalesce(sum(c.number), 0) AS int)
                     FROM generate_series(0, {RATE_STEPS - 1}) AS step(no)
                     LEFT JOIN counted c ON c.kind = {kind} AND c.step = step.no GROUP BY step.no ORDER BY step.no)"""


_SWEPT = text(f"""
    WITH {BELIEVED}, rated AS MATERIALIZED ({rated(LIVE_PRODUCTS)}
    ), counted AS MATERIALIZED (
        SELECT k.kind, least(floor(ln(k.rate / {LOWEST_RATE}) / ln(CAST(2 AS float8))), {RATE_STEPS - 1}) AS step,
               count(*) AS number
        FROM rated CROSS JOIN LATERAL (
            VALUES {", ".join(f"({number}, {kind}_rate)" for number, kind in enumerate(LEARNT_KINDS))}
        ) AS k(kind, rate)
        GROUP BY 1, 2
    )
    INSERT INTO recrawl_sellers AS r (seller_id, swept_at, products,
                                      {", ".join(f"{kind}_rates" for kind in LEARNT_KINDS)})
    SELECT :seller_id, :now, (SELECT coalesce(sum(number), 0) FROM counted WHERE kind = 0),
           {", ".join(_rates(number) for number, _ in enumerate(LEARNT_KINDS))}
    ON CONFLICT (seller_id) DO UPDATE SET
        look_hours = r.look_hours
                     + coalesce({LOOK_GAIN} * ({hours_between("r.swept_at", "excluded.swept_at")} - r.look_hours), 0),
        swept_at = excluded.swept_at, products = excluded.products,
        {", ".join(f"{kind}_rates = excluded.{kind}_rates" for kind in LEARNT_KINDS)}
""")

# Sources that were never fetched are new, not old.
_ENDED = text(f"""
    UPDATE recrawl_sellers SET oldest_at = (
        SELECT min(least({", ".join(f"f.{kind}_fetched_at" for kind in LEARNT_KINDS)}))
        FROM ({LIVE_PRODUCTS}) AS p CROSS JOIN LATERAL (
            SELECT {", ".join(f"{kind}_fetched_at" for kind in LEARNT_KINDS)} FROM recrawl_products f
            WHERE f.seller_id = :seller_id AND f.item_no = p.item_no LIMIT 1) AS f)
    WHERE seller_id = :seller_id
""")


def evidence_of_kinds(*more: str) -> str:
    """The rows of a seller `r`, one for each kind of source: its evidence, and other columns of the kind."""
    names = (*EVIDENCE, *more)
    rows = ", ".join(f"({', '.join(f'r.{kind}_{name}' for name in names)})" for kind in LEARNT_KINDS)
    return f"(VALUES {rows}) AS k({', '.join(names)})"


_OF_KIND = SellerEvidence(*(column(f"k.{name}") for name in EVIDENCE))
SEEN, RATE = listing(_OF_KIND, SQL), seller_rate(_OF_KIND, SQL)

# Few groups, however many sellers there are: by rate, by what the listing shows in quarters, and by how far it lies in
# powers of ten. A seller that was never swept counts with the products of its listing, at the usual rate.
_CROWD = text(f"""
    WITH known AS MATERIALIZED (
        SELECT s.total_product_count, r.*, r.swept_at IS NULL AS unknown
        FROM sellers s LEFT JOIN recrawl_sellers r ON r.seller_id = s.seller_id WHERE {ACTIVE}
    ), kinds AS MATERIALIZED (
        SELECT k.rates, {SEEN.shown} AS shown, {SEEN.false_rate} AS false_rate,
               sum({SEEN.shown} * {RATE}) OVER (PARTITION BY r.seller_id) - {SEEN.shown} * {RATE} AS other
        FROM known r CROSS JOIN LATERAL {evidence_of_kinds("rates")} WHERE NOT r.unknown
    ), grouped AS (
        SELECT step.no AS step, sum(step.number) AS number, sum(step.number * k.shown) AS shown,
               sum(step.number * ln(k.false_rate)) AS false_rate, sum(step.number * k.other) AS other
        FROM kinds k CROSS JOIN LATERAL unnest(k.rates) WITH ORDINALITY AS step(number, no)
        WHERE step.number > 0 GROUP BY step.no, round(k.shown * 4), round(log(k.false_rate))
    )
    SELECT step, CAST(number AS float8) AS number, shown / number AS shown, exp(false_rate / number) AS false_rate,
           greatest(other / number, 0) AS other, 0 AS products, CAST(0 AS float8) AS unknown,
           CAST(0 AS float8) AS look_hours
    FROM grouped
    UNION ALL
    SELECT NULL, NULL, NULL, NULL, NULL,
           coalesce(sum(CASE WHEN unknown THEN total_product_count ELSE products END), 0),
           coalesce(sum(CASE WHEN unknown THEN total_product_count END), 0),
           sum(products * greatest(look_hours, {LEAST_LOOK_HOURS})) / nullif(sum(products), 0) FROM known
""")

INTERVAL_HOURS = "CAST(CASE s.interval_unit WHEN 'DAYS' THEN 24 ELSE 1 END * s.interval_amount AS float8)"
_LOOK = text(f"""
    SELECT r.swept_at, coalesce(r.look_hours, {LEAST_LOOK_HOURS}) AS look_hours, {INTERVAL_HOURS} AS interval_hours,
           s.total_product_count AS products
    FROM sellers s LEFT JOIN recrawl_sellers r USING (seller_id) WHERE s.seller_id = :seller_id
""")

_READ = text("""
    SELECT price, kept_age, promise_broken, freshness, requests_per_hour, needed_per_hour, sources, judged_at, planned
    FROM recrawl_pool
""")

_JUDGED = text("""
    INSERT INTO recrawl_pool (price, kept_age, promise_broken, freshness, requests_per_hour, needed_per_hour, sources,
                              judged_at)
    VALUES (:price, :kept_age, :promise_broken, :freshness, :requests_per_hour, :needed_per_hour, :sources, :judged_at)
    ON CONFLICT (single) DO UPDATE SET
        price = excluded.price, kept_age = excluded.kept_age, promise_broken = excluded.promise_broken,
        freshness = excluded.freshness, requests_per_hour = excluded.requests_per_hour,
        needed_per_hour = excluded.needed_per_hour, sources = excluded.sources, judged_at = excluded.judged_at,
        planned = 0
""")

_COUNT = text("UPDATE recrawl_pool SET planned = planned + :planned")

_BACKLOG = text(f"""
    SELECT coalesce(sum(total_tasks - completed_tasks - failed_tasks), 0) FROM crawling_schedule_executions
    WHERE {OPEN_EXECUTION}
""")

_PAGES = "(1 + ceil(r.products / CAST(:page_size AS float8)))"
_HOURS = column("l.hours")
_VALUE_OF_SWEEP = sweep_value(column("CAST(r.products AS float8)"), RATE, SEEN.shown, _HOURS, SQL)
_WORTH = light_crawl_value(
    column("v.swept"),
    column(_PAGES),
    _HOURS,
    column("(CAST(:requests_per_hour AS float8) * 2 * r.products / greatest(CAST(:sources AS float8), 1))"),
    column("CAST(:price AS float8)"),
)

# One narrow row for each seller, those with the oldest sources first. Those that are due soon are looked at then.
_LIGHT = text(f"""
    SELECT r.seller_id, r.boost * {_WORTH} AS worth, l.hours, CAST({_PAGES} AS int) AS pages,
           {INTERVAL_HOURS} AS interval_hours, coalesce({hours_between("o.oldest_at", ":now")}, 0) AS oldest_hours
    FROM recrawl_sellers r
    JOIN sellers s ON s.seller_id = r.seller_id
    JOIN crawling_schedules c ON c.seller_id = r.seller_id
    CROSS JOIN LATERAL (SELECT {hours_between("r.swept_at", ":now")} AS hours OFFSET 0) AS l
    CROSS JOIN LATERAL (
        SELECT CASE WHEN r.swept_at < greatest(r.oldest_at + CAST(:late AS interval), :failed_before)
                    THEN r.oldest_at END AS oldest_at OFFSET 0) AS o
    CROSS JOIN LATERAL (SELECT sum({_VALUE_OF_SWEEP}) AS swept FROM {evidence_of_kinds()} OFFSET 0) AS v
    WHERE {ACTIVE} AND c.status = '{ScheduleStatus.ACTIVE.value}' AND r.products > 0
      AND l.hours >= {LEAST_LOOK_HOURS}
      AND c.next_due_at > CAST(:now AS timestamptz) + make_interval(secs => {LEAST_LOOK_HOURS * 3600})
      AND r.seller_id <> ALL(CAST(:busy AS text[]))
      AND NOT EXISTS (SELECT FROM crawling_schedule_executions e
                      WHERE e.seller_id = r.seller_id AND e.{OPEN_EXECUTION})
    ORDER BY coalesce(o.oldest_at <= CAST(:now AS timestamptz) - CAST(:late AS interval), false) DESC, worth DESC,
             r.seller_id
    LIMIT :limit
""")

_BOOST_SELLER = text("""
    INSERT INTO recrawl_sellers (seller_id, boost) VALUES (:seller_id, :boost)
    ON CONFLICT (seller_id) DO UPDATE SET boost = excluded.boost
""")

_BOOST_PRODUCT = text("""
    INSERT INTO recrawl_products (seller_id, item_no, boost) VALUES (:seller_id, :item_no, :boost)
    ON CONFLICT (seller_id, item_no) DO UPDATE SET boost = excluded.boost
""")

# At worst: everything of every seller that becomes due by then.
_DUE_REQUESTS = text(f"""
    SELECT coalesce(sum(1 + ceil(s.total_product_count / CAST(:page_size AS float8)) + 2 * s.total_product_count), 0)
    FROM crawling_schedules c JOIN sellers s USING (seller_id)
    WHERE c.status = '{ScheduleStatus.ACTIVE.value}' AND {ACTIVE} AND c.next_due_at <= :by
""")


def swept(connection: Connection, seller_id: str, now: datetime) -> None:
    """Record a look at a seller's whole listing, and how often the sources of its products change."""
    connection.execute(_SWEPT, {"seller_id": seller_id, "now": now})


def ended(connection: Connection, seller_id: str) -> None:
    """Record how old a seller's oldest source is, now that a crawl has ended."""
    connection.execute(_ENDED, {"seller_id": seller_id})


def look_of(connection: Connection, seller_id: str) -> SellerLook:
    """When a seller was looked at, and how often it is."""
    return SellerLook(*connection.execute(_LOOK, {"seller_id": seller_id}).one())


def crowd(connection: Connection) -> Crowd:
    """All sources of active sellers, in groups of like ones."""
    *rows, total = sorted(connection.execute(_CROWD), key=lambda row: row.step is None)
    groups = [
        Group(row.number, LOWEST_RATE * 2 ** (row.step - 0.5), 1.0, Listing(row.shown, row.false_rate), row.other)
        for row in rows
    ]
    if total.unknown:
        rate, seen = seller_rate(SellerEvidence()), listing(SellerEvidence())
        groups.append(Group(len(LEARNT_KINDS) * total.unknown, rate, 1.0, seen, seen.shown * rate))
    return Crowd(tuple(groups), int(total.products), total.look_hours or LEAST_LOOK_HOURS)


def read_pool(connection: Connection) -> PoolTerms | None:
    """The terms as they were judged last; None before the first time."""
    row = connection.execute(_READ).one_or_none()
    return None if row is None else PoolTerms(*row)


def store_pool(connection: Connection, terms: PoolTerms) -> None:
    """Store what was judged; what crawls want counts anew."""
    connection.execute(_JUDGED, asdict(terms))


def count_planned(connection: Connection, planned: int) -> None:
    """Add what a crawl has planned."""
    connection.execute(_COUNT, {"planned": planned})


def backlog(connection: Connection) -> int:
    """Tasks of open crawls that have not ended."""
    return int(connection.execute(_BACKLOG).scalar_one())


def light_candidates(
    connection: Connection, pool: PoolTerms, *, page_size: int, busy: Collection[str], now: datetime, limit: int
) -> list[LightCandidate]:
    """Sellers without an open crawl, that of most worth first."""
    values = {
        "page_size": page_size,
        "requests_per_hour": pool.requests_per_hour,
        "sources": pool.sources,
        "price": pool.price,
        "busy": sorted(busy),
        "now": now,
        "late": timedelta(hours=fetched_before(pool.kept_age)),
        "failed_before": now - FAILED_FOR,
        "limit": limit,
    }
    return [LightCandidate(*row) for row in connection.execute(_LIGHT, values)]


def due_requests(connection: Connection, *, by: datetime, page_size: int) -> int:
    """The most requests that sellers need that become due by then."""
    return int(connection.execute(_DUE_REQUESTS, {"by": by, "page_size": page_size}).scalar_one())


def boost_seller(connection: Connection, seller_id: str, boost: float) -> None:
    """Let each product of a seller count so many times as much, as an operator wants it."""
    connection.execute(_BOOST_SELLER, {"seller_id": seller_id, "boost": boost})


def boost_product(connection: Connection, seller_id: str, item_no: int, boost: float) -> None:
    """Let a product count so many times as much."""
    connection.execute(_BOOST_PRODUCT, {"seller_id": seller_id, "item_no": item_no, "boost": boost})
