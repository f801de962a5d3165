"""Aggregates in any state, for tests that care about one thing at a time."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from mustit_pipeline.domain.execution import CrawlingScheduleExecution
from mustit_pipeline.domain.outbox import ProductOutbox, SchedulerOutbox
from mustit_pipeline.domain.product import Product
from mustit_pipeline.domain.schedule import CrawlingSchedule
from mustit_pipeline.domain.seller import Seller
from mustit_pipeline.domain.states import ProductEventType, ScheduleEventType, TaskStatus, TaskType
from mustit_pipeline.domain.task import CrawlerTask
from mustit_pipeline.domain.user_agent import UserAgent
from mustit_pipeline.domain.values import (
    CrawlingInterval,
    ExecutionId,
    ItemNo,
    OutboxId,
    ProductId,
    ScheduleId,
    SellerId,
    TaskId,
    UserAgentId,
)

T0 = datetime(2026, 11, 16, 0, 0, tzinfo=UTC)
LATER = T0 + timedelta(hours=2)
DMONT = SellerId("dmont")
ID = UUID("00000000-0000-4000-8000-000000000001")
OTHER_ID = UUID("00000000-0000-4000-8000-000000000002")
DETAIL_URL = "https://m.web.mustit.co.kr/mustit-api/facade-api/v1/item/118005032/detail/top"


def seller(**fields: Any) -> Seller:
    return replace(Seller.register(DMONT, "디몬트", T0), **fields)


def schedule(**fields: Any) -> CrawlingSchedule:
    values = {"id": ScheduleId(ID), "seller_id": DMONT, "interval": CrawlingInterval.DEFAULT, "next_due_at": T0}
    return CrawlingSchedule(**(values | fields))


def execution(**fields: Any) -> CrawlingScheduleExecution:
    return replace(CrawlingScheduleExecution(id=ExecutionId(ID), seller_id=DMONT, created_at=T0), **fields)


def task(**fields: Any) -> CrawlerTask:
    leased = CrawlerTask(
        id=TaskId(ID),
        execution_id=ExecutionId(ID),
        seller_id=DMONT,
        task_type=TaskType.PRODUCT_DETAIL,
        request_url=DETAIL_URL,
        created_at=T0,
        item_no=ItemNo(118005032),
        status=TaskStatus.IN_PROGRESS,
    )
    return replace(leased, **fields)


def agent(**fields: Any) -> UserAgent:
    return replace(UserAgent(id=UserAgentId(ID), user_agent="Mozilla/5.0 (iPhone)"), **fields)


def product(**fields: Any) -> Product:
    return replace(Product(id=ProductId(ID), seller_id=DMONT, item_no=ItemNo(118005032)), **fields)


def product_outbox(**fields: Any) -> ProductOutbox:
    row = ProductOutbox(
        id=OutboxId(ID),
        created_at=T0,
        seller_id=DMONT,
        item_no=ItemNo(118005032),
        version=2,
        event_type=ProductEventType.PRODUCT_UPDATED,
    )
    return replace(row, **fields)


def scheduler_outbox(**fields: Any) -> SchedulerOutbox:
    row = SchedulerOutbox(
        id=OutboxId(ID),
        created_at=T0,
        schedule_id=ScheduleId(ID),
        event_type=ScheduleEventType.SCHEDULE_REGISTERED,
        payload="{}",
    )
    return replace(row, **fields)
