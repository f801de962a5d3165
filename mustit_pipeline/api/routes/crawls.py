"""Crawls that people and other systems ask for; the pipeline starts them within seconds."""

from typing import Annotated

from fastapi import APIRouter
from pydantic import Field

from mustit_pipeline.api.context import Asking, Caller
from mustit_pipeline.api.models import Answer, Body, Text
from mustit_pipeline.api.paths import SellerInPath
from mustit_pipeline.crawling import steering
from mustit_pipeline.crawling.steering import Opened
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.clock import utc_now

router = APIRouter(prefix="/sellers", tags=["sellers"])
machines = APIRouter(prefix="/api/internal/crawling", tags=["internal"])


class NewCrawl(Body):
    """How to crawl; a crawl that is joined keeps its own way."""

    full: bool = Field(False, description="Refetch every product", examples=[False])


class TriggeredSeller(Body):
    """The seller to crawl."""

    seller_id: Annotated[Text, Field(max_length=200, examples=["dmont"])]


class CrawlOpened(Answer):
    """The seller's open execution."""

    execution_id: str = Field(examples=["0b6f13c2-8d5e-4a3c-9b1f-2e7d6c5b4a39"])
    joined: bool = Field(description="Whether the execution was open before", examples=[False])


class CrawlTriggered(CrawlOpened):
    """The same, with the tasks that are planned so far."""

    task_count: int = Field(description="0 until the execution is planned", examples=[0])


@router.post("/{sellerId}/crawl", status_code=202)
def crawl_seller(seller_id: SellerInPath, caller: Asking, body: NewCrawl | None = None) -> CrawlOpened:
    """Crawl a seller now, or join its open crawl; refused while the seller is INACTIVE or its crawl PAUSED."""
    opened = _trigger(caller, seller_id, full=body is not None and body.full)
    return CrawlOpened(execution_id=str(opened.stored.id), joined=opened.joined)


@machines.post("/trigger")
def trigger_crawl(body: TriggeredSeller, caller: Asking) -> CrawlTriggered:
    """The same for another system, with an API key of scope `trigger`."""
    opened = _trigger(caller, SellerId(body.seller_id))
    return CrawlTriggered(
        execution_id=str(opened.stored.id), joined=opened.joined, task_count=opened.stored.planned_tasks
    )


def _trigger(caller: Caller, seller_id: SellerId, *, full: bool = False) -> Opened:
    actor = caller.identity.actor()
    return steering.trigger(
        caller.audited("crawl.trigger", steering.target_of_trigger(seller_id)),
        seller_id,
        triggered_by=f"{actor.kind} {actor.name}",
        now=utc_now(),
        full_refetch=full,
    )
