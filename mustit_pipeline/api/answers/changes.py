"""What changed: the fields of a version."""

from typing import Any

from pydantic import Field

from mustit_pipeline.api.models import Answer, Id, Time
from mustit_pipeline.domain.states import ChangeType, LifeCycle


class ChangedField(Answer):
    """One field's old and new value."""

    type: ChangeType
    field: str = Field(examples=["discountPrice"])
    old: Any = Field(examples=[565100])
    new: Any = Field(examples=[540000])


class ChangeSetAnswer(Answer):
    """The changes of one version; `name` is the product's name in it."""

    seller_id: str = Field(examples=["dmont"])
    item_no: int = Field(examples=[118005032])
    name: str | None = Field(examples=["MINI BACKPACK"])
    version: int = Field(examples=[2])
    life_cycle: LifeCycle
    change_types: list[ChangeType]
    changes: list[ChangedField]
    execution_id: Id = Field(examples=["0197f2a4-0000-7000-8000-000000000001"])
    detected_at: Time = Field(examples=["2026-11-17T00:00:00+00:00"])
