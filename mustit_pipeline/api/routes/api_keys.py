"""API keys for machines: trigger crawls, read metrics."""

from typing import Annotated

from fastapi import APIRouter, Path, Response
from pydantic import Field

from mustit_pipeline.access import api_keys
from mustit_pipeline.access.sql import api_keys as stored
from mustit_pipeline.api.answers.api_keys import KeyAnswer, Scopes
from mustit_pipeline.api.context import Asking
from mustit_pipeline.api.models import Body, Pages, Text
from mustit_pipeline.api.paging import PageNumber, Size, pages
from mustit_pipeline.domain.access import LONGEST_USER_NAME, KeyName, Scope
from mustit_pipeline.domain.filters import read_duration

router = APIRouter(prefix="/api-keys", tags=["API keys"])

_ONE_SCOPE = "|".join(Scope)
KeyId = Annotated[str, Path(alias="keyId", pattern="^[0-9a-f]{12}$", examples=["3f9c0a7be214"])]


class NewKey(Body):
    """What a key is for, what it opens, and how long it lives."""

    name: Annotated[Text, Field(min_length=1, max_length=LONGEST_USER_NAME, examples=["scheduler"])]
    scope: Annotated[Scopes, Field(max_length=100, pattern=f"^({_ONE_SCOPE})( ({_ONE_SCOPE}))*$")] = Scope.TRIGGER.value
    expires: Annotated[
        str, Field(pattern="^[1-9][0-9]{0,2}[hdw]$", description="From now on: 12h, 90d, 4w", examples=["90d"])
    ] = "90d"


class CreatedKey(KeyAnswer):
    """A new key with its text, which is shown this once."""

    key: str = Field(description="For the header `X-API-Key`", examples=["mk_3f9c0a7be214_…"])


@router.get("")
def list_keys(caller: Asking, page: PageNumber = 0, size: Size = 20) -> Pages[KeyAnswer]:
    """API keys by name, ended ones too."""
    with caller.database.reading() as connection:
        found = stored.everything(connection)
    shown = found[page * size : (page + 1) * size]
    return pages([KeyAnswer.of(key) for key in shown], len(found), page, size)


@router.post("", status_code=201)
def create_key(body: NewKey, caller: Asking) -> CreatedKey:
    """Create an API key and show it, this once; two of a name can be active."""
    name, lifetime = KeyName(body.name), read_duration(body.expires)
    audited = caller.audited("apikey.create", api_keys.target(name.value))
    made = api_keys.create(audited, name, {Scope(one) for one in body.scope.split(" ")}, lifetime)
    return CreatedKey(**dict(KeyAnswer.of(made.key)), key=made.text)


@router.delete("/{keyId}", status_code=204)
def revoke_key(key_id: KeyId, caller: Asking) -> Response:
    """End an API key at once."""
    with caller.database.reading() as connection:
        name = stored.get(connection, key_id).name
    api_keys.revoke(caller.audited("apikey.revoke", api_keys.target(name)), key_id)
    return Response(status_code=204)
