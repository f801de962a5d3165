"""What the routes work with: settings, the database, and who asks."""

from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Request

from mustit_pipeline.access.api_keys import KeyIdentity
from mustit_pipeline.access.audit import AuditedDatabase
from mustit_pipeline.access.tokens import Identity
from mustit_pipeline.api.requests import RequestInfo, info
from mustit_pipeline.foundation.audited import Target
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.settings import Settings, SigningKeys

IDENTITY = "mustit.identity"


@dataclass(frozen=True, slots=True)
class Ground:
    """The settings, the database and the keys of one server process."""

    settings: Settings
    database: Database
    keys: SigningKeys


@dataclass(frozen=True, slots=True)
class Caller:
    """One request with what it needs: where the data is, and who asks."""

    ground: Ground
    request: RequestInfo
    identity: Identity | KeyIdentity

    @property
    def database(self) -> Database:
        return self.ground.database

    @property
    def settings(self) -> Settings:
        return self.ground.settings

    def audited(self, action: str, target: Target) -> AuditedDatabase:
        """The database for one change, which is written down with who made it."""
        actor = self.identity.actor(request_id=self.request.request_id, address=self.request.address)
        return AuditedDatabase(self.database, actor, action, target)


def ground_of(request: Request) -> Ground:
    """The ground of the application."""
    return request.app.state.ground


async def _caller(request: Request) -> Caller:
    identity = cast("Identity | KeyIdentity", request.scope["state"][IDENTITY])
    return Caller(ground_of(request), info(request.scope), identity)


Asking = Annotated[Caller, Depends(_caller)]
OnGround = Annotated[Ground, Depends(ground_of)]
