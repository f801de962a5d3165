"""Schema drift."""

from pydantic import AliasPath, Field

from mustit_pipeline.api.models import Answer, Time
from mustit_pipeline.domain.drift import DriftKind


class DriftAnswer(Answer):
    """A field that is new, missing or of another type."""

    path: str = Field(validation_alias=AliasPath("deviation", "path"), examples=["detail.ProductInfoModule.couponList"])
    kind: DriftKind = Field(validation_alias=AliasPath("deviation", "kind"))
    expected: str = Field(validation_alias=AliasPath("deviation", "expected"), examples=[""])
    observed: str = Field(validation_alias=AliasPath("deviation", "observed"), examples=["array"])
    sample: str = Field(validation_alias=AliasPath("deviation", "sample"), examples=["[]"])
    count: int = Field(description="Bodies that show it", examples=[12])
    first_seen_at: Time = Field(examples=["2026-11-16T00:00:00+00:00"])
    last_seen_at: Time = Field(examples=["2026-11-17T00:00:00+00:00"])
    seller_id: str = Field(examples=["dmont"])
    item_no: int | None = Field(examples=[118005032])
    accepted_at: Time | None = Field(examples=[None])
