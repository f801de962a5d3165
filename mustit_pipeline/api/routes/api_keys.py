"""API keys for machines: trigger crawls, read metrics."""

from enum import StrEnum
from typing import Annotated

from fastapi import APIRouter, Path, Response
from pydantic import Field

from mustit_pipeline.access import api_keys
from mustit_pipeline.access.sql import api_keys as stored
from mustit_pipeline.access.sql.api_keys import ApiKey
from mustit_pipeline.api.context import Asking
from mustit_pipeline.api.models import Answer, Body, Pages, Text, Time
from mustit_pipeline.api.paging import PageNumber, Size, pages
from mustit_pipeline.domain.access import LONGEST_USER_NAME, KeyName, Scope
from mustit_pipeline.domain.filters import read_duration

router = APIRouter(prefix="/api-keys", tags=["API keys"])

_ONE_SCOPE = "|".join(Scope)
KeyId = Annotated[str, Path(alias="keyId", pattern="^[0-9a-f]{12}$", examples=["3f9c0a7be214"])]
Scopes = Annotated[str, Field(description="What it opens, separated by blanks", examples=["trigger"])]


class KeyState(StrEnum):
    """Whether a key opens something."""

    ACTIVE = "active"
    EXPIRED = "expired"
    REVOKED = "revoked"


class NewKey(Body):
    """What a key is for, what it opens, and how long it lives."""

    name: Annotated[Text, Field(min_length=1, max_length=LONGEST_USER_NAME, examples=["scheduler"])]
    scope: Annotated[Scopes, Field(max_length=100, pattern=f"^({_ONE_SCOPE})( ({_ONE_SCOPE}))*$")] = Scope.TRIGGER.value
    expires: Annotated[
        str, Field(pattern="^[1-9][0-9]{0,2}[hdw]$", description="From now on: 12h, 90d, 4w", examples=["90d"])
    ] = "90d"


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


class CreatedKey(KeyAnswer):
    """A new key with its text, which is shown this once."""

    key: str = Field(description="For the header `X-API-Key`", examples=["mk_3f9c0a7be214_…"])


@router.get("")
def list_keys(caller: Asking, page: PageNumber = 0, size: Size = 20) -> Pages[KeyAnswer]:
    """API keys by name, ended ones too."""
    with caller.database.reading() as connection:
        found = stored.everything(connection)
    shown = found[page * size : (page + 1) * size]
    return pages([_answer(key) for key in shown], len(found), page, size)


@router.post("", status_code=201)
def create_key(body: NewKey, caller: Asking) -> CreatedKey:
    """Create an API key and show it, this once; two of a name can be active."""
    name, lifetime = KeyName(body.name), read_duration(body.expires)
    audited = caller.audited("apikey.create", f"apikey {name}", api_keys.look(name.value))
    made = api_keys.create(audited, name, {Scope(one) for one in body.scope.split(" ")}, lifetime)
    return CreatedKey(**_answer(made.key).model_dump(), key=made.text)


@router.delete("/{keyId}", status_code=204)
def revoke_key(key_id: KeyId, caller: Asking) -> Response:
    """End an API key at once."""
    with caller.database.reading() as connection:
        name = stored.get(connection, key_id).name
    api_keys.revoke(caller.audited("apikey.revoke", f"apikey {name}", api_keys.look(name)), key_id)
    return Response(status_code=204)


def _state(key: ApiKey) -> KeyState:
    if key.revoked_at is not None:
        return KeyState.REVOKED
    return KeyState.EXPIRED if key.expired else KeyState.ACTIVE


def _answer(key: ApiKey) -> KeyAnswer:
    return KeyAnswer(
        id=key.id,
        name=key.name,
        scope=" ".join(sorted(key.scopes)),
        state=_state(key),
        created_at=key.created_at,
        expires_at=key.expires_at,
        last_used_at=key.last_used_at,
        revoked_at=key.revoked_at,
    )
