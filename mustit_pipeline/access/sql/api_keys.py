"""API keys, of which only a hash is stored."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, text

from mustit_pipeline.domain.access import KEYS_PER_NAME, KeyName, KeyState, Scope
from mustit_pipeline.domain.errors import Conflict, NotFound
from mustit_pipeline.foundation import advisory_locks
from mustit_pipeline.foundation.advisory_locks import PerName


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key as lists show it; its secret is known to its owner alone."""

    id: str
    name: str
    scopes: frozenset[Scope]
    created_at: datetime
    expires_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None
    # By the database's clock.
    expired: bool

    @property
    def scope(self) -> str:
        """What it opens, as OAuth writes several."""
        return " ".join(sorted(self.scopes))

    @property
    def state(self) -> KeyState:
        if self.revoked_at is not None:
            return KeyState.REVOKED
        return KeyState.EXPIRED if self.expired else KeyState.ACTIVE

    @property
    def is_active(self) -> bool:
        return self.state is KeyState.ACTIVE


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key with what a presented secret is compared with; whether its last use has to be written down."""

    key: ApiKey
    secret_hash: bytes
    use_is_news: bool


_ADD = text(f"""
    INSERT INTO api_keys (key_id, name, scopes, secret_hash, expires_at)
    SELECT :id, CAST(:name AS text), :scopes, :hash, now() + make_interval(secs => :seconds)
    WHERE (SELECT count(*) FROM api_keys
           WHERE name = :name AND revoked_at IS NULL AND expires_at > now()) < {KEYS_PER_NAME}
    RETURNING *, false AS expired
""")
_GET = text("""
    SELECT *, expires_at <= now() AS expired,
           last_used_at IS NULL OR last_used_at < now() - interval '1 minute' AS use_is_news
    FROM api_keys WHERE key_id = :id
""")
_ALL = text("SELECT *, expires_at <= now() AS expired FROM api_keys ORDER BY name, created_at")
_OF_NAME = text("SELECT *, expires_at <= now() AS expired FROM api_keys WHERE name = :name ORDER BY created_at")
_USED = text("""
    UPDATE api_keys SET last_used_at = now()
    WHERE key_id = :id AND (last_used_at IS NULL OR last_used_at < now() - interval '1 minute')
""")
_REVOKE = text("UPDATE api_keys SET revoked_at = now() WHERE key_id = :id AND revoked_at IS NULL RETURNING key_id")


def add(
    connection: Connection, key_id: str, name: KeyName, scopes: Collection[Scope], *, secret_hash: bytes, seconds: float
) -> ApiKey:
    """Store a new key; a third active one of a name is a conflict."""
    advisory_locks.lock(connection, PerName.API_KEY.of(name.value))
    values = {
        "id": key_id,
        "name": name.value,
        "scopes": sorted(scope.value for scope in scopes),
        "hash": secret_hash,
        "seconds": seconds,
    }
    row = connection.execute(_ADD, values).one_or_none()
    if row is None:
        raise Conflict(
            "CONFLICT_API_KEYS_ACTIVE",
            korean=f"{name} 이름의 활성 API 키가 이미 {KEYS_PER_NAME}개 있습니다",
            english=f"{name} has {KEYS_PER_NAME} active API keys already: revoke one first",
        )
    return _key(row)


def find(connection: Connection, key_id: str) -> StoredKey | None:
    """A key by its id."""
    row = connection.execute(_GET, {"id": key_id}).one_or_none()
    return None if row is None else StoredKey(_key(row), bytes(row.secret_hash), row.use_is_news)


def get(connection: Connection, key_id: str) -> ApiKey:
    """A key by its id; an unknown one is an error."""
    found = find(connection, key_id)
    if found is None:
        raise NotFound(
            "NOT_FOUND_API_KEY",
            korean=f"API 키를 찾을 수 없습니다: {key_id}",
            english=f"There is no API key {key_id}: see `mustit apikey list`",
        )
    return found.key


def everything(connection: Connection) -> list[ApiKey]:
    """All keys, those of one name together."""
    return [_key(row) for row in connection.execute(_ALL)]


def of_name(connection: Connection, name: str) -> list[ApiKey]:
    """The keys of one name, oldest first."""
    return [_key(row) for row in connection.execute(_OF_NAME, {"name": name})]


def record_use(connection: Connection, key_id: str) -> None:
    """Remember that a key was used, once a minute."""
    connection.execute(_USED, {"id": key_id})


def revoke(connection: Connection, key_id: str) -> bool:
    """End a key; False where it has ended already."""
    return connection.execute(_REVOKE, {"id": key_id}).one_or_none() is not None


def _key(row: Row[Any]) -> ApiKey:
    return ApiKey(
        id=row.key_id,
        name=row.name,
        scopes=frozenset(map(Scope, row.scopes)),
        created_at=row.created_at,
        expires_at=row.expires_at,
        last_used_at=row.last_used_at,
        revoked_at=row.revoked_at,
        expired=row.expired,
    )
