"""Deletion holds."""

from pydantic import Field

from mustit_pipeline.api.models import Answer, Id, Rounded, Time
from mustit_pipeline.catalog.deletion import Decision
from mustit_pipeline.domain.deletion import DeletionHold
from mustit_pipeline.domain.states import HoldStatus


class DeletionHoldAnswer(Answer):
    """Products missing from one seller's sweep, too many at once to be believed."""

    hold_id: Id = Field(validation_alias="id", examples=["5e0d2a91-6c4b-4d1e-8f3a-7b2c1d0e9f8a"])
    seller_id: Id = Field(examples=["dmont"])
    execution_id: Id
    status: HoldStatus
    live_count: int = Field(description="Products of the seller before the sweep", examples=[400])
    held_count: int = Field(examples=[130])
    share: Rounded = Field(description="Held products of the live ones, in percent", examples=[32.5])
    opened_at: Time
    closed_at: Time | None


class DeletionHoldDetail(DeletionHoldAnswer):
    """A hold with its products."""

    item_nos: list[int] = Field(examples=[[118005032]])
    still_absent: list[int] = Field(description="What an approval would delete; empty when it is decided")

    @classmethod
    def whole(cls, hold: DeletionHold, absent: list[int]) -> "DeletionHoldDetail":
        """A hold with the products that no execution has seen since."""
        return cls(**dict(DeletionHoldAnswer.of(hold)), item_nos=list(hold.item_nos), still_absent=absent)


class DecisionAnswer(DeletionHoldAnswer):
    """How a hold ended."""

    deleted: list[int] = Field(description="Item numbers", examples=[[118005032]])
    kept_count: int = Field(description="Products of the hold that stay", examples=[0])

    @classmethod
    def whole(cls, decision: Decision) -> "DecisionAnswer":
        """A decided hold with its products."""
        return cls(**dict(DeletionHoldAnswer.of(decision.hold)), deleted=decision.deleted, kept_count=decision.kept)
