"""Products."""

from typing import Any

from pydantic import Field

from mustit_pipeline.api.models import Answer, Id, Time
from mustit_pipeline.catalog.history import state
from mustit_pipeline.catalog.sql.history import KnownProduct, Version
from mustit_pipeline.domain.states import LifeCycle, OutboxStatus


class HashesAnswer(Answer):
    """SHA-256 of what each source said last, of the merged data, and of the newest version."""

    listing: str | None = Field(examples=["9f86d081884c7d65"])
    detail: str | None = Field(examples=["60303ae22b998861"])
    options: str | None = Field(examples=["fd61a03af4f77d87"])
    data: str | None = Field(examples=["a4e624d686e03ed2"])
    published: str | None = Field(examples=["a4e624d686e03ed2"])


class DeliveryAnswer(Answer):
    """How far a version is on its way to the product server."""

    outbox_id: Id | None = Field(examples=["0b6f13c2-0000-4000-8000-000000000002"])
    status: OutboxStatus | None
    superseded: bool = Field(description="Not sent, because a newer version replaced it")
    completed_at: Time | None = Field(examples=["2026-11-17T00:00:05+00:00"])


class ProductAnswer(Answer):
    """A product in one of its versions."""

    seller_id: str = Field(examples=["dmont"])
    item_no: int = Field(examples=[118005032])
    version: int = Field(description="The version that is shown; 0 before the first", examples=[2])
    newest_version: int = Field(examples=[2])
    delivered_version: int = Field(examples=[2])
    life_cycle: LifeCycle | None
    detected_at: Time | None = Field(examples=["2026-11-17T00:00:00+00:00"])
    complete: bool
    absent_sweeps: int = Field(description="Complete sweeps in a row that did not show it", examples=[0])
    first_seen_at: Time = Field(examples=["2026-11-16T00:00:00+00:00"])
    last_seen_at: Time | None = Field(examples=["2026-11-17T00:00:00+00:00"])
    deleted_at: Time | None = Field(examples=[None])
    hashes: HashesAnswer
    delivery: DeliveryAnswer | None = Field(description="Of the version that is shown")
    product_data: dict[str, Any] | None = Field(
        description="As the product server gets it; null in a deletion",
        examples=[{"itemNo": 118005032, "name": "MINI BACKPACK", "discountPrice": 540000, "stock": 3}],
    )

    @classmethod
    def whole(cls, product: KnownProduct, version: Version | None) -> "ProductAnswer":
        """A product in one of its versions, or before the first."""
        data = product.data if version is None else version.data
        shown = None if version is None else version.change_set
        return cls(
            seller_id=product.seller_id,
            item_no=product.item_no,
            version=0 if shown is None else shown.version,
            newest_version=product.version,
            delivered_version=product.delivered_version,
            life_cycle=None if shown is None else shown.life_cycle,
            detected_at=None if shown is None else shown.detected_at,
            complete=product.complete,
            absent_sweeps=product.absent_sweeps,
            first_seen_at=product.created_at,
            last_seen_at=product.last_seen_at,
            deleted_at=product.deleted_at,
            hashes=HashesAnswer.of(product.hashes),
            delivery=None if version is None else DeliveryAnswer.of(version.delivery),
            product_data=None if data is None else dict(state(data)),
        )


class VersionHead(Answer):
    """One side of a comparison."""

    version: int = Field(examples=[1])
    life_cycle: LifeCycle
    detected_at: Time = Field(examples=["2026-11-16T00:00:00+00:00"])
