"""Messages that must reach an external system, whatever fails in between."""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Self
from urllib.parse import quote

from mustit_pipeline.domain.aggregate import Aggregate
from mustit_pipeline.domain.errors import InvariantViolated, ValidationFailed
from mustit_pipeline.domain.limits import OUTBOX_MAX_RETRIES
from mustit_pipeline.domain.machine import StateMachine
from mustit_pipeline.domain.product import Product
from mustit_pipeline.domain.states import (
    PRODUCT_OUTBOX,
    SCHEDULER_OUTBOX,
    LifeCycle,
    OutboxStatus,
    ProductEventType,
    ScheduleEventType,
)
from mustit_pipeline.domain.values import ItemNo, OutboxId, ScheduleId, SellerId

# A product that is new to the product server, or back, is created there.
_EVENT_TYPES = {
    LifeCycle.DELETED: ProductEventType.PRODUCT_DELETED,
    LifeCycle.UPDATED: ProductEventType.PRODUCT_UPDATED,
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outbox(Aggregate):
    """The base of both outboxes: one message, its tries and its end."""

    machine: ClassVar[StateMachine[OutboxStatus]]

    id: OutboxId
    created_at: datetime
    status: OutboxStatus = OutboxStatus.WAITING
    retry_count: int = 0
    max_retries: int = OUTBOX_MAX_RETRIES
    permanent: bool = False
    last_error: str | None = None
    completed_at: datetime | None = None

    def can_retry(self) -> bool:
        """Whether this failure is followed by another try."""
        retryable = self.status in self.machine.sources("retry") and not self.permanent
        return retryable and self.retry_count < self.max_retries

    def complete(self, at: datetime) -> None:
        """The receiver has accepted it."""
        self._set(status=self.machine.move(self.status, "complete"), completed_at=at, last_error=None)

    def fail(self, reason: str, *, permanent: bool = False) -> None:
        """This try failed; a permanent failure would fail again and is never retried by itself."""
        status = self.machine.move(self.status, "fail")
        self._set(status=status, retry_count=self.retry_count + 1, last_error=reason, permanent=permanent)

    def retry(self) -> None:
        """Wait for the next try."""
        status = self.machine.move(self.status, "retry")
        if self.permanent:
            raise InvariantViolated(
                "INVARIANT_OUTBOX_PERMANENT",
                korean="영구 실패한 메시지는 수동으로만 다시 보낼 수 있습니다",
                english="A message that failed permanently can only be replayed by hand",
            )
        if not self.can_retry():
            raise InvariantViolated(
                "INVARIANT_OUTBOX_RETRIES_EXCEEDED",
                korean=f"최대 재시도 횟수({self.max_retries})를 초과했습니다",
                english=f"No retries are left (at most {self.max_retries})",
            )
        self._set(status=status)

    def release(self) -> None:
        """Its sender died or gave it back; this does not count as a try."""
        self._set(status=self.machine.move(self.status, "release"))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProductOutbox(Outbox):
    """One version of one product, to be sent to the product server."""

    machine: ClassVar[StateMachine[OutboxStatus]] = PRODUCT_OUTBOX

    seller_id: SellerId
    item_no: ItemNo
    version: int
    event_type: ProductEventType

    @classmethod
    def announcing(cls, product: Product, life_cycle: LifeCycle, at: datetime) -> Self:
        """The event of a product's newest version."""
        return cls(
            id=OutboxId.new(),
            created_at=at,
            seller_id=product.seller_id,
            item_no=product.item_no,
            version=product.version,
            event_type=_EVENT_TYPES.get(life_cycle, ProductEventType.PRODUCT_CREATED),
        )

    @property
    def idempotency_key(self) -> str:
        """The same key for the same version, however often it is sent."""
        return f"{quote(self.seller_id.value, safe='')}:{self.item_no}:{self.version}"

    def send_as(self, event_type: ProductEventType) -> None:
        """Set the event type that fits the product server's state: an update of a product that it lacks creates it."""
        deletion = ProductEventType.PRODUCT_DELETED
        if self.status is not OutboxStatus.SENDING or (self.event_type is deletion) != (event_type is deletion):
            raise InvariantViolated(
                "INVARIANT_OUTBOX_EVENT_TYPE",
                korean="전송 중인 메시지만 생성과 수정 사이에서 유형을 바꿀 수 있습니다",
                english="Only a message being sent changes its type, and never to or from a deletion",
            )
        self._set(event_type=event_type)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SchedulerOutbox(Outbox):
    """One change of a schedule, to be sent to EventBridge."""

    machine: ClassVar[StateMachine[OutboxStatus]] = SCHEDULER_OUTBOX

    schedule_id: ScheduleId
    event_type: ScheduleEventType
    payload: str

    def __post_init__(self) -> None:
        try:
            json.loads(self.payload, parse_constant=_refuse_constant)
        except ValueError:
            raise ValidationFailed(
                "VALIDATION_OUTBOX_PAYLOAD",
                korean="Payload는 유효한 JSON 형식이어야 합니다",
                english="A payload must be valid JSON",
            ) from None

    def address(self, target_arn: str) -> None:
        """Name the target that it is sent with; which one that is, is known only now."""
        self._set(payload=json.dumps(json.loads(self.payload) | {"targetArn": target_arn}, ensure_ascii=False))


def _refuse_constant(name: str) -> None:
    """Python reads NaN and Infinity, JSON has no such numbers."""
    raise ValueError(name)
