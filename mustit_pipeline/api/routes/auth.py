"""Logging in and out."""

from typing import Annotated, Literal

from fastapi import APIRouter, Request, Response
from pydantic import Field

from mustit_pipeline.access import login as logins
from mustit_pipeline.access import tokens
from mustit_pipeline.access.tokens import Identity
from mustit_pipeline.api.context import Asking, OnGround
from mustit_pipeline.api.models import Answer, Body
from mustit_pipeline.api.requests import info
from mustit_pipeline.domain.access import Role

entrance = APIRouter(prefix="/auth", tags=["auth"])
router = APIRouter(prefix="/auth", tags=["auth"])


class Login(Body):
    """Who logs in."""

    username: Annotated[str, Field(max_length=256, examples=["kim"])]
    password: Annotated[
        str, Field(max_length=4096, examples=["correct horse battery"], json_schema_extra={"format": "password"})
    ]


class LoggedIn(Answer):
    """An access token, for the header `Authorization: Bearer …`."""

    access_token: str
    token_type: Literal["Bearer"] = "Bearer"
    expires_in: int = Field(description="Seconds", examples=[900])
    role: Role


@entrance.post("/login")
def login(body: Login, ground: OnGround, request: Request) -> LoggedIn:
    """An access token for 15 minutes; wrong logins are slowed by account and address."""
    address = info(request.scope).address
    token = logins.login(ground.database, ground.settings, body.username, body.password, address)
    return LoggedIn(access_token=token.text, expires_in=token.expires_in, role=token.role)


@router.post("/logout", status_code=204)
def logout(caller: Asking) -> Response:
    """End the access token of this request at once."""
    assert isinstance(caller.identity, Identity)
    with caller.database.transaction() as connection:
        tokens.revoke(connection, caller.identity)
    return Response(status_code=204)
