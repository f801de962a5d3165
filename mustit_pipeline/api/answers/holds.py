"""Change holds."""

from pydantic import AliasPath, Field

from mustit_pipeline.api.models import Answer, Id, Rounded, Time
from mustit_pipeline.domain.states import ChangeHoldStatus


class ChangeHoldAnswer(Answer):
    """One seller's changes, unpublished until they look right again or an admin releases them."""

    hold_id: Id = Field(validation_alias="id", examples=["5e0d2a91-6c4b-4d1e-8f3a-7b2c1d0e9f8a"])
    seller_id: Id = Field(examples=["dmont"])
    status: ChangeHoldStatus
    jumped: int = Field(
        validation_alias=AliasPath("suspicion", "jumped"), description="Products whose price jumps", examples=[120]
    )
    emptied: int = Field(
        validation_alias=AliasPath("suspicion", "emptied"),
        description="Products that lose fields they live by",
        examples=[3],
    )
    suspicious: int = Field(validation_alias=AliasPath("suspicion", "suspicious"), examples=[121])
    looked_at: int = Field(validation_alias=AliasPath("suspicion", "looked_at"), examples=[400])
    share: Rounded = Field(
        validation_alias=AliasPath("suspicion", "share"),
        description="Suspicious products of those looked at, in percent",
        examples=[30.25],
    )
    examples: list[int] = Field(
        validation_alias=AliasPath("suspicion", "examples"), description="Item numbers", examples=[[118005032]]
    )
    opened_at: Time
    closed_at: Time | None
