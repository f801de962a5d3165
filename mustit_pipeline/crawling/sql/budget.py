"""What requests were spent on, and which sellers have the oldest sources."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text

from mustit_pipeline.catalog.sql.tables import OF_ALL_SELLERS
from mustit_pipeline.crawling.sql.expressions import hours_between
from mustit_pipeline.crawling.sql.tables import BY_CREATION
from mustit_pipeline.domain.states import LifeCycle, SellerStatus

_ACTIVE = f"s.status = '{SellerStatus.ACTIVE.value}'"


@dataclass(frozen=True, slots=True)
class Spent:
    """The requests of crawls, and the changes of known products that they found."""

    requests: int
    changes: int


@dataclass(frozen=True, slots=True)
class OldSeller:
    """A seller, its products, and how many hours ago its oldest source was fetched."""

    seller_id: str
    products: int
    oldest_hours: float
    look_hours: float


_SPENT = text(f"""
    SELECT (SELECT coalesce(sum(requests), 0) FROM crawling_schedule_executions
            WHERE created_at >= :since AND {BY_CREATION}) AS requests,
           (SELECT count(*) FROM product_change_sets
            WHERE detected_at >= :since AND {OF_ALL_SELLERS} AND life_cycle = '{LifeCycle.UPDATED.value}') AS changes
""")

# One narrow row for each seller.
_OLDEST = text(f"""
    SELECT r.seller_id, r.products, {hours_between("r.oldest_at", ":now")} AS oldest_hours, r.look_hours
    FROM recrawl_sellers r JOIN sellers s ON s.seller_id = r.seller_id
    WHERE {_ACTIVE} AND r.products > 0 AND r.oldest_at IS NOT NULL
    ORDER BY r.oldest_at, r.seller_id LIMIT :limit
""")


def spent(connection: Connection, since: datetime) -> Spent:
    """The requests of crawls that were opened since then, and the changes that were found since."""
    return Spent(*map(int, connection.execute(_SPENT, {"since": since}).one()))


def oldest(connection: Connection, now: datetime, limit: int) -> list[OldSeller]:
    """The sellers whose sources were oldest when their last crawl had ended, by their age now."""
    return [OldSeller(*row) for row in connection.execute(_OLDEST, {"now": now, "limit": limit})]
