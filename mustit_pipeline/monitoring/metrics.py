"""The numbers of a day in Seoul, for the asset of all sellers and for one seller."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from statistics import median
from zoneinfo import ZoneInfo

from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.monitoring.fetch_times import fetch_times
from mustit_pipeline.monitoring.sql import metrics
from mustit_pipeline.monitoring.sql.metrics import CHANGE_KINDS, SellerDay
from mustit_pipeline.sellers.sql import sellers

__all__ = ["CHANGE_KINDS", "CrawlMetrics", "DaySums", "days_to_compute", "metrics_of", "metrics_of_seller", "sums"]

SEOUL = "Asia/Seoul"
# A crawl that still runs after a week has been paused; a backfill computes its day again.
LOOK_BACK_DAYS = 7


@dataclass(frozen=True, slots=True)
class CrawlMetrics:
    """One seller's day with its rates in percent; 0 where the divisor is 0."""

    day: date
    counts: SellerDay
    # Of all sellers' fetches together: a slow marketplace is slow for all.
    fetch_p95_seconds: float | None = None

    @property
    def success_rate(self) -> float:
        """Succeeded tasks of all tasks."""
        return _percent(self.counts.tasks_completed, self.counts.tasks_total)

    @property
    def progress_rate(self) -> float:
        """Complete products of all listed products at the end of the day."""
        return min(100.0, _percent(self.counts.products_complete, self.counts.products_total))


@dataclass(frozen=True, slots=True)
class DaySums:
    """All sellers of a day together."""

    sellers: int
    crawled_sellers: int
    tasks_total: int
    tasks_completed: int
    tasks_failed: int
    requests: int
    throttled: int
    change_sets: int
    delivered: int
    success_rate: float
    progress_rate: float
    median_of_delivery_medians_hours: float | None
    delivery_max_hours: float | None
    fetch_p95_seconds: float | None


def day_span(day: date) -> tuple[datetime, datetime]:
    """From midnight to midnight in Seoul."""
    start = datetime.combine(day, time(), ZoneInfo(SEOUL))
    return start, start + timedelta(days=1)


def _day_of(moment: datetime) -> date:
    return moment.astimezone(ZoneInfo(SEOUL)).date()


def metrics_of(database: Database, day: date) -> list[CrawlMetrics]:
    """Every seller's day; without sellers that were registered later."""
    start, end = day_span(day)
    with database.reading() as connection:
        p95 = fetch_times(connection, start, end).p95
        return [CrawlMetrics(day, counts, p95) for counts in metrics.seller_days(connection, start, end)]


def metrics_of_seller(database: Database, seller_id: SellerId, day: date) -> CrawlMetrics:
    """One seller's day; all zeros before it was registered."""
    start, end = day_span(day)
    with database.reading() as connection:
        sellers.get(connection, seller_id)
        p95 = fetch_times(connection, start, end).p95
        found = metrics.seller_days(connection, start, end, seller_id.value)
    return CrawlMetrics(day, found[0] if found else SellerDay.nothing(seller_id.value), p95)


def days_to_compute(database: Database, now: datetime, measured: Collection[date]) -> list[date]:
    """The days from the first unmeasured one to yesterday, and earlier days whose crawls continued since.

    After an outage Dagster repeats only the last missed tick, so missed days are computed here. Days before the first
    seller are left out.
    """
    yesterday = _day_of(now) - timedelta(days=1)
    with database.reading() as connection:
        registered = sellers.first_registered(connection)
        known = yesterday if registered is None else _day_of(registered)
        days = [yesterday - timedelta(days=back) for back in range(LOOK_BACK_DAYS, 0, -1)]
        first = min((day for day in days if day >= known and day not in measured), default=yesterday)
        since, _ = day_span(first)
        horizon = since - timedelta(days=LOOK_BACK_DAYS)
        earlier = metrics.days_moved_since(connection, since, horizon=horizon, zone=SEOUL)
    return [*earlier, *(day for day in days if day >= first), yesterday]


def sums(rows: Sequence[CrawlMetrics]) -> DaySums:
    """The sums of all sellers."""
    counts = [row.counts for row in rows]
    tasks, completed = sum(one.tasks_total for one in counts), sum(one.tasks_completed for one in counts)
    listed = sum(one.products_total for one in counts)
    complete = sum(min(one.products_complete, one.products_total) for one in counts)
    medians = [one.delivery_median_hours for one in counts if one.delivery_median_hours is not None]
    longest = [one.delivery_max_hours for one in counts if one.delivery_max_hours is not None]
    return DaySums(
        sellers=len(rows),
        crawled_sellers=sum(one.crawls > 0 for one in counts),
        tasks_total=tasks,
        tasks_completed=completed,
        tasks_failed=sum(one.tasks_failed for one in counts),
        requests=sum(one.requests for one in counts),
        throttled=sum(one.throttled for one in counts),
        change_sets=sum(one.change_sets for one in counts),
        delivered=sum(one.delivered for one in counts),
        success_rate=_percent(completed, tasks),
        progress_rate=_percent(complete, listed),
        median_of_delivery_medians_hours=median(medians) if medians else None,
        delivery_max_hours=max(longest, default=None),
        fetch_p95_seconds=next((row.fetch_p95_seconds for row in rows), None),
    )


def _percent(part: int, whole: int) -> float:
    return 100.0 * part / whole if whole else 0.0
