"""API keys."""

from typing import Annotated

from pydantic import Field

from mustit_pipeline.api.models import Answer, Time
from mustit_pipeline.domain.access import KeyState

Scopes = Annotated[str, Field(description="What it opens, separated by blanks", examples=["trigger"])]


class KeyAnswer(Answer):
    """A key; its text is known to its owner alone."""

    id: str = Field(examples=["3f9c0a7be214"])
    name: str = Field(examples=["scheduler"])
    scope: Scopes
    state: KeyState
    created_at: Time = Field(examples=["2026-11-16T00:00:00+00:00"])
    expires_at: Time = Field(examples=["2027-02-14T00:00:00+00:00"])
    last_used_at: Time | None = Field(examples=["2026-11-17T00:00:00+00:00"])
    revoked_at: Time | None = Field(examples=[None])
