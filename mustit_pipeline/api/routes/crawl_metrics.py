"""The numbers of a seller's day."""

from datetime import date, datetime
from typing import Annotated
from zoneinfo import ZoneInfo

from fastapi import APIRouter, Query
from pydantic import Field

from mustit_pipeline.api.context import Asking
from mustit_pipeline.api.models import Answer, Text
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.monitoring.metrics import SEOUL, CrawlMetrics, metrics_of_seller

router = APIRouter(prefix="/metrics", tags=["metrics"])

# Days beyond have the same numbers as these; Python and PostgreSQL cannot compute with all of them.
FIRST_DAY, LAST_DAY = date(2000, 1, 1), date(2999, 12, 31)


class TaskStats(Answer):
    """The tasks of the crawls that started on this day."""

    total: int = Field(examples=[1204])
    completed: int = Field(examples=[871])
    failed: int = Field(examples=[2])
    in_progress: int = Field(examples=[50])
    waiting: int = Field(description="To be tried for the first time, or again", examples=[281])


class CrawlMetricsAnswer(Answer):
    """One seller's day in Seoul, from midnight to midnight."""

    seller_id: str = Field(examples=["dmont"])
    date: date
    success_rate: float = Field(description="Succeeded tasks of all tasks, in percent", examples=[98.75])
    progress_rate: float = Field(description="Complete products of all listed ones, in percent", examples=[99.2])
    task_stats: TaskStats
    crawls: int
    requests: int
    throttled: int = Field(description="Requests that were answered with 429")
    changes: dict[str, int] = Field(examples=[{"CREATED": 12, "PRICE": 40}])
    delivered: int = Field(description="Events that the product server has accepted")


@router.get("/crawling")
def show_crawl_metrics(
    caller: Asking,
    seller_id: Annotated[Text, Query(alias="sellerId", max_length=200, examples=["dmont"])],
    day: Annotated[date | None, Query(alias="date", description="A day in Seoul; today where it is left out")] = None,
) -> CrawlMetricsAnswer:
    """How a seller's crawls of one day went."""
    asked = day or _today()
    found = metrics_of_seller(caller.database, SellerId(seller_id), min(max(asked, FIRST_DAY), LAST_DAY))
    return _answer(found, asked)


def _today() -> date:
    now: datetime = utc_now()
    return now.astimezone(ZoneInfo(SEOUL)).date()


def _answer(found: CrawlMetrics, day: date) -> CrawlMetricsAnswer:
    counts = found.counts
    return CrawlMetricsAnswer(
        seller_id=counts.seller_id,
        date=day,
        success_rate=round(found.success_rate, 2),
        progress_rate=round(found.progress_rate, 2),
        task_stats=TaskStats(
            total=counts.tasks_total,
            completed=counts.tasks_completed,
            failed=counts.tasks_failed,
            in_progress=counts.tasks_in_progress,
            waiting=counts.tasks_waiting + counts.tasks_published + counts.tasks_retry,
        ),
        crawls=counts.crawls,
        requests=counts.requests,
        throttled=counts.throttled,
        changes=counts.changes,
        delivered=counts.delivered,
    )
