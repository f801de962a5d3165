"""The gate of the API: every path below /api and /metrics has its rule here, and one without a rule is closed."""

from dataclasses import dataclass

from anyio.to_thread import run_sync
from fastapi import Request
from sqlalchemy.exc import SQLAlchemyError
from starlette.types import ASGIApp, Receive, Scope, Send

from mustit_pipeline.access import tokens
from mustit_pipeline.access.api_keys import KeyIdentity, verify_key
from mustit_pipeline.access.tokens import Identity, TokenRefusal
from mustit_pipeline.api.context import IDENTITY, Ground, ground_of
from mustit_pipeline.api.problems import problem, unavailable
from mustit_pipeline.api.requests import info
from mustit_pipeline.domain.access import Role
from mustit_pipeline.domain.access import Scope as KeyScope
from mustit_pipeline.domain.errors import DomainError
from mustit_pipeline.foundation.database import is_away

READS = {"GET", "HEAD", "OPTIONS"}
OPEN = {"/api/v1/auth/login"}
GUARDED = ("/api/", "/metrics")
# Paths below these need the role for reading too.
FOR_ADMINS = ("/api/v1/users", "/api/v1/api-keys", "/api/v1/audit")
# Changes that any person may make.
FOR_ALL = {"/api/v1/auth/logout"}
KEY_SCOPES = {"/api/internal/": KeyScope.TRIGGER, "/metrics": KeyScope.METRICS}


@dataclass(frozen=True, slots=True)
class NeedsKey:
    """An API key with this scope."""

    scope: KeyScope


def rule(method: str, path: str) -> Role | NeedsKey | None:
    """What a request needs; None for what is open to all."""
    if path in OPEN or not path.startswith(GUARDED):
        return None
    for prefix, scope in KEY_SCOPES.items():
        if path.startswith(prefix):
            return NeedsKey(scope)
    if any(path == prefix or path.startswith(f"{prefix}/") for prefix in FOR_ADMINS):
        return Role.ADMIN
    return Role.VIEWER if method in READS or path in FOR_ALL else Role.ADMIN


class Gate:
    """Finds out who asks, before a route or a body is looked at."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        needed = rule(scope["method"], scope["path"])
        if needed is None:
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        try:
            identity = await run_sync(_identify, ground_of(request), request, needed)
        except DomainError as error:
            await problem(info(scope), error)(scope, receive, send)
            return
        except SQLAlchemyError as error:
            if not is_away(error):
                raise
            await problem(info(scope), unavailable())(scope, receive, send)
            return
        scope["state"][IDENTITY] = identity
        await self._app(scope, receive, send)


def _identify(ground: Ground, request: Request, needed: Role | NeedsKey) -> Identity | KeyIdentity:
    if isinstance(needed, NeedsKey):
        return verify_key(ground.database, request.headers.get("x-api-key", ""), needed.scope)
    kind, _, text = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "bearer" or not text:
        raise tokens.refused(TokenRefusal.MISSING)
    with ground.database.asking() as connection:
        identity = tokens.verify(connection, ground.keys, text.strip())
    identity.require(needed)
    return identity
