"""Events for the product server."""

from pydantic import Field

from mustit_pipeline.api.answers.changes import ChangedField
from mustit_pipeline.api.models import Answer, Id, Time
from mustit_pipeline.catalog.sql.history import Version
from mustit_pipeline.domain.states import OutboxStatus, ProductEventType
from mustit_pipeline.outbox.sql.outbox_list import OutboxEntry


class EventAnswer(Answer):
    """One event: its tries and its state."""

    outbox_id: Id = Field(examples=["0b6f13c2-0000-4000-8000-000000000002"])
    event_id: Id = Field(examples=["5f0c2d9e-0000-4000-8000-000000000003"])
    event_type: ProductEventType
    seller_id: str = Field(examples=["dmont"])
    item_no: int = Field(examples=[118005032])
    version: int = Field(examples=[2])
    status: OutboxStatus
    idempotency_key: str = Field(examples=["dmont:118005032:2"])
    attempts: int = Field(examples=[1])
    retry_count: int = Field(description="Attempts that counted as failures", examples=[0])
    last_status: int | None = Field(description="HTTP status of the last answer", examples=[200])
    last_error: str | None = Field(examples=[None])
    superseded_by: Id | None = Field(description="The event of a newer version, sent in its place", examples=[None])
    next_attempt_at: Time | None = Field(description="While it waits", examples=[None])
    created_at: Time = Field(examples=["2026-11-17T00:00:00+00:00"])
    completed_at: Time | None = Field(examples=["2026-11-17T00:00:05+00:00"])


class EventDetail(EventAnswer):
    """One event with what it says."""

    changes: list[ChangedField]

    @classmethod
    def whole(cls, entry: OutboxEntry, version: Version | None) -> "EventDetail":
        """An event with its version, where that is still there."""
        changes = [] if version is None else version.change_set.changes
        return cls(**dict(EventAnswer.of(entry)), changes=[ChangedField.of(change) for change in changes])
