"""Sellers: which are crawled, and how often."""

from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Query, Response
from pydantic import Field

from mustit_pipeline.api.context import Asking
from mustit_pipeline.api.models import Answer, Body, Pages, Text, Time
from mustit_pipeline.api.paging import PageNumber, Size, pages
from mustit_pipeline.api.paths import SellerInPath
from mustit_pipeline.api.problems import RequestRefused
from mustit_pipeline.crawling.steering import deactivate_seller
from mustit_pipeline.domain.states import ScheduleStatus, SellerStatus
from mustit_pipeline.domain.values import CrawlingInterval, IntervalUnit, SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.sellers import registry
from mustit_pipeline.sellers.sql import sellers
from mustit_pipeline.sellers.sql.sellers import ScheduledSeller

router = APIRouter(prefix="/sellers", tags=["sellers"])

Days = Annotated[int | None, Field(strict=True, description="1 to 30; or hours", examples=[1])]
Hours = Annotated[int | None, Field(strict=True, description="1 to 23; or days", examples=[6])]


class NewSeller(Body):
    """A seller to be crawled, every day unless an interval is given."""

    seller_id: Annotated[Text, Field(max_length=200, examples=["dmont"])]
    name: Annotated[Text, Field(max_length=200, examples=["D.MONT"])]
    crawling_interval_days: Days = None
    crawling_interval_hours: Hours = None


class NewInterval(Body):
    """Either days or hours."""

    crawling_interval_days: Days = None
    crawling_interval_hours: Hours = None


class SellerAnswer(Answer):
    """A seller and its schedule."""

    seller_id: str
    name: str
    status: SellerStatus
    crawling_interval_days: int | None
    crawling_interval_hours: int | None
    total_product_count: int
    schedule_status: ScheduleStatus
    next_due_at: Time
    last_triggered_at: Time | None
    created_at: Time
    updated_at: Time


@router.post("", status_code=201)
def register_seller(body: NewSeller, caller: Asking, response: Response) -> SellerAnswer:
    """Register a seller; its first crawl is due at once."""
    seller_id = SellerId(body.seller_id)
    interval = _interval(body.crawling_interval_days, body.crawling_interval_hours) or CrawlingInterval.DEFAULT
    database = caller.audited("seller.register", registry.target(seller_id))
    registry.register(database, seller_id, body.name, interval, utc_now())
    response.headers["Location"] = f"/api/v1/sellers/{quote(seller_id.value, safe='')}"
    return _found(caller, seller_id)


@router.get("")
def list_sellers(
    caller: Asking,
    status: SellerStatus | None = None,
    q: Annotated[Text | None, Query(max_length=200, description="Part of the id or the name")] = None,
    page: PageNumber = 0,
    size: Size = 20,
) -> Pages[SellerAnswer]:
    """Sellers by id."""
    with caller.database.reading() as connection:
        found, total = sellers.find_page(connection, status=status, words=q, first=page * size, size=size)
    return pages([_answer(entry) for entry in found], total, page, size)


@router.get("/{sellerId}")
def show_seller(seller_id: SellerInPath, caller: Asking) -> SellerAnswer:
    """One seller."""
    return _found(caller, seller_id)


@router.patch("/{sellerId}/interval")
def change_interval(seller_id: SellerInPath, body: NewInterval, caller: Asking) -> SellerAnswer:
    """Crawl a seller at another interval."""
    interval = _interval(body.crawling_interval_days, body.crawling_interval_hours)
    if interval is None:
        raise _one_interval()
    database = caller.audited("seller.interval", registry.target(seller_id))
    registry.change_interval(database, seller_id, interval, utc_now())
    return _found(caller, seller_id)


@router.post("/{sellerId}/activate")
def activate_seller(seller_id: SellerInPath, caller: Asking) -> SellerAnswer:
    """Crawl a seller again."""
    database = caller.audited("seller.activate", registry.target(seller_id))
    registry.activate(database, seller_id, utc_now())
    return _found(caller, seller_id)


@router.post("/{sellerId}/deactivate")
def stop_crawling_seller(seller_id: SellerInPath, caller: Asking) -> SellerAnswer:
    """Stop crawling a seller; its open crawl is cancelled."""
    database = caller.audited("seller.deactivate", registry.target(seller_id))
    deactivate_seller(database, seller_id, utc_now())
    return _found(caller, seller_id)


def _interval(days: int | None, hours: int | None) -> CrawlingInterval | None:
    if days is not None and hours is not None:
        raise _one_interval()
    if days is not None:
        return CrawlingInterval.days(days)
    return None if hours is None else CrawlingInterval.hours(hours)


def _one_interval() -> RequestRefused:
    return RequestRefused(
        "VALIDATION_INTERVAL",
        korean="crawlingIntervalDays와 crawlingIntervalHours 중 하나만 지정하세요",
        english="Give either crawlingIntervalDays or crawlingIntervalHours",
    )


def _found(caller: Asking, seller_id: SellerId) -> SellerAnswer:
    with caller.database.reading() as connection:
        return _answer(sellers.find_scheduled(connection, seller_id))


def _answer(entry: ScheduledSeller) -> SellerAnswer:
    seller = entry.seller
    interval = seller.interval
    return SellerAnswer(
        seller_id=seller.seller_id.value,
        name=seller.name,
        status=seller.status,
        crawling_interval_days=interval.amount if interval.unit is IntervalUnit.DAYS else None,
        crawling_interval_hours=interval.amount if interval.unit is IntervalUnit.HOURS else None,
        total_product_count=seller.total_product_count,
        schedule_status=entry.schedule_status,
        next_due_at=entry.next_due_at,
        last_triggered_at=entry.last_triggered_at,
        created_at=seller.created_at,
        updated_at=seller.updated_at,
    )
