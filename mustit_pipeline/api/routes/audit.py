"""The audit log: who changed what."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import AliasPath, Field

from mustit_pipeline.access.sql import audit_log
from mustit_pipeline.access.sql.audit_log import AuditFilter
from mustit_pipeline.api.context import Asking
from mustit_pipeline.api.filters import Since
from mustit_pipeline.api.models import Answer, CursorPage, Text, Time
from mustit_pipeline.api.paging import Cursor, Size, make_cursor, read_cursor
from mustit_pipeline.domain.access import ActorKind

router = APIRouter(prefix="/audit", tags=["audit"])

Words = Annotated[Text | None, Query(max_length=300)]


def _of_actor(name: str) -> AliasPath:
    return AliasPath("actor", name)


class AuditAnswer(Answer):
    """One change: who, when, what, before, after."""

    id: int = Field(examples=[4711])
    at: Time = Field(examples=["2026-11-17T00:00:00+00:00"])
    actor_kind: ActorKind = Field(validation_alias=_of_actor("kind"))
    actor: str = Field(validation_alias=_of_actor("name"), examples=["kim"])
    action: str = Field(examples=["seller.interval"])
    target: str = Field(examples=["seller dmont"])
    before: dict[str, Any] | None = Field(examples=[{"interval": "1d"}])
    after: dict[str, Any] | None = Field(examples=[{"interval": "7d"}])
    request_id: str | None = Field(
        validation_alias=_of_actor("request_id"), examples=["5b0c7f0e9a1d4c0f8e1a2b3c4d5e6f70"]
    )
    address: str | None = Field(validation_alias=_of_actor("address"), examples=["127.0.0.1"])


@router.get("")
def list_audit_log(
    caller: Asking,
    *,
    actor: Words = None,
    action: Words = None,
    target: Words = None,
    since: Since = None,
    cursor: Cursor = None,
    size: Size = 20,
) -> CursorPage[AuditAnswer]:
    """Changes by people, API keys and commands, newest first; each filter takes the whole value."""
    before_id = None if cursor is None else int(read_cursor(cursor, (int,))[0])
    wanted = AuditFilter(actor, action, target, since)
    with caller.database.reading() as connection:
        found = audit_log.newest(connection, wanted, limit=size, before_id=before_id)
    following = make_cursor(found.rows[-1].id) if found.more else None
    return CursorPage(content=[AuditAnswer.of(entry) for entry in found.rows], size=size, next_cursor=following)
