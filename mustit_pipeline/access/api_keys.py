"""API keys for machines: shown once, stored as a hash, two of a name while one replaces the other."""

import hmac
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

import structlog
from sqlalchemy import Connection

from mustit_pipeline.access import keyed_secrets
from mustit_pipeline.access.sql import api_keys
from mustit_pipeline.access.sql.api_keys import ApiKey
from mustit_pipeline.access.sql.audit_log import Actor
from mustit_pipeline.domain.access import ActorKind, KeyName, Scope
from mustit_pipeline.domain.errors import Conflict, Forbidden, Unauthorized, ValidationFailed
from mustit_pipeline.foundation.audited import State, Target
from mustit_pipeline.foundation.database import Database

PREFIX = "mk"
LONGEST_LIFETIME = timedelta(days=3650)
# Compared with where there is no such key, so that the answer takes as long.
NO_HASH = bytes(32)

log = structlog.get_logger(__name__)


class KeyRefusal(StrEnum):
    """Why a key is refused: for our logs, never for who sent it."""

    MALFORMED = "malformed"
    UNKNOWN = "unknown"
    SECRET = "secret"
    REVOKED = "revoked"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class NewApiKey:
    """A key and, this once, its text."""

    key: ApiKey
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class KeyIdentity:
    """Who a valid key speaks for."""

    key_id: str
    name: str
    scopes: frozenset[Scope]

    def actor(self, *, request_id: str | None = None, address: str | None = None) -> Actor:
        """The same as the audit log names it."""
        return Actor(ActorKind.KEY, f"{self.name} ({self.key_id})", request_id, address)


def create(database: Database, name: KeyName, scopes: Collection[Scope], lifetime: timedelta) -> NewApiKey:
    """A new key; a third active one of a name is refused."""
    if not timedelta(0) < lifetime <= LONGEST_LIFETIME or not scopes:
        raise ValidationFailed(
            "VALIDATION_API_KEY",
            korean="API 키에는 하나 이상의 scope와 3650일 이하의 유효 기간이 필요합니다",
            english="An API key has at least one scope and lives for at most 3650 days",
        )
    secret = keyed_secrets.make(PREFIX)
    with database.transaction() as connection:
        key = api_keys.add(
            connection, secret.id, name, scopes, secret_hash=secret.hash, seconds=lifetime.total_seconds()
        )
    return NewApiKey(key, secret.text)


def verify_key(database: Database, text: str, scope: Scope) -> KeyIdentity:
    """Who a key speaks for, if it opens what is asked for; its use is written down once a minute."""
    presented = keyed_secrets.read(PREFIX, text)
    if presented is None:
        raise _refused(KeyRefusal.MALFORMED)
    key_id, secret_hash = presented
    with database.asking() as connection:
        found = api_keys.find(connection, key_id)
    same = hmac.compare_digest(secret_hash, NO_HASH if found is None else found.secret_hash)
    if found is None or not same:
        raise _refused(KeyRefusal.UNKNOWN if found is None else KeyRefusal.SECRET)
    if found.key.revoked_at is not None:
        raise _refused(KeyRefusal.REVOKED)
    if found.key.expired:
        raise _refused(KeyRefusal.EXPIRED)
    if scope not in found.key.scopes:
        raise Forbidden(
            "FORBIDDEN_SCOPE",
            korean=f"{scope} scope를 가진 API 키가 필요합니다",
            english=f"This needs an API key with the scope {scope}",
        )
    if found.use_is_news:
        with database.transaction() as connection:
            api_keys.record_use(connection, key_id)
    return KeyIdentity(key_id, found.key.name, found.key.scopes)


def revoke(database: Database, key_id: str) -> ApiKey:
    """End a key at once."""
    with database.transaction() as connection:
        key = api_keys.get(connection, key_id)
        if not api_keys.revoke(connection, key_id):
            raise Conflict(
                "CONFLICT_API_KEY_REVOKED",
                korean=f"이미 폐기된 API 키입니다: {key_id}",
                english=f"The API key {key_id} is revoked already",
            )
    return key


def target(name: str) -> Target:
    """The active keys of a name as the audit log shows them."""

    def seen(connection: Connection) -> State | None:
        active = [key for key in api_keys.of_name(connection, name) if key.is_active]
        return {
            "active": [
                {"id": key.id, "scopes": sorted(key.scopes), "expiresAt": key.expires_at.isoformat()} for key in active
            ]
        }

    return Target(f"apikey {name}", seen)


def _refused(reason: KeyRefusal) -> Unauthorized:
    log.info("API key refused", reason=reason.value)
    return Unauthorized(
        "UNAUTHORIZED_API_KEY",
        korean="올바른 API 키가 필요합니다",
        english="A valid API key is needed",
        reason=reason.value,
    )
