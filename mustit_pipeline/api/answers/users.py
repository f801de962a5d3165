"""Users."""

from pydantic import Field

from mustit_pipeline.api.models import Answer, Id, Time
from mustit_pipeline.domain.access import Role


class UserAnswer(Answer):
    """A user; nothing of the password but whether there is one."""

    name: Id = Field(examples=["kim"])
    role: Role
    disabled: bool = Field(validation_alias="is_disabled")
    has_password: bool
    created_at: Time = Field(examples=["2026-11-16T00:00:00+00:00"])
    updated_at: Time = Field(examples=["2026-11-16T00:00:00+00:00"])
    last_login_at: Time | None = Field(examples=["2026-11-17T00:00:00+00:00"])
