"""Alerts."""

from pydantic import Field

from mustit_pipeline.api.models import Answer, Id, Time


class AlertAnswer(Answer):
    """A problem: since when it is there, and how often it was sent."""

    alert_id: Id = Field(validation_alias="id", examples=["3a1d7c55-0000-4000-8000-000000000004"])
    subject: str = Field(examples=["seller dmont"])
    kind: str = Field(examples=["RUN_FAILED"])
    title: str = Field(examples=["The crawl of dmont failed"])
    detail: str = Field(examples=["3 of 20 tasks failed"])
    opened_at: Time = Field(examples=["2026-11-17T00:00:00+00:00"])
    last_seen_at: Time = Field(examples=["2026-11-17T01:00:00+00:00"])
    ended_at: Time | None = Field(examples=[None])
    notices: int = Field(description="Times that it was sent", examples=[1])
    last_error: str | None = Field(description="Why it could not be sent", examples=[None])
