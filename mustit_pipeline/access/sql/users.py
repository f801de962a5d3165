"""Users."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, text

from mustit_pipeline.domain.access import Role, UserName
from mustit_pipeline.domain.errors import Conflict, NotFound


@dataclass(frozen=True, slots=True)
class User:
    """A person who may log in; the hash of the password is not part of it."""

    name: UserName
    role: Role
    has_password: bool
    generation: int
    disabled_at: datetime | None
    created_at: datetime
    updated_at: datetime
    last_login_at: datetime | None

    @property
    def is_disabled(self) -> bool:
        return self.disabled_at is not None


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user, and the hash that a typed password is compared with."""

    user: User
    password_hash: str | None


_ADD = text("""
    INSERT INTO users (user_name, role, password_hash) VALUES (:name, :role, :password_hash)
    ON CONFLICT (user_name) DO NOTHING RETURNING *
""")
# Only where no other user is: the first start of an installation.
_ADD_FIRST = text("""
    INSERT INTO users (user_name, role) SELECT :name, :role WHERE NOT EXISTS (SELECT FROM users)
    ON CONFLICT (user_name) DO NOTHING RETURNING *
""")
_GET = text("SELECT * FROM users WHERE user_name = :name")
_LOCK = text("SELECT * FROM users WHERE user_name = :name FOR NO KEY UPDATE")
_ALL = text("SELECT * FROM users ORDER BY user_name")
# In one order: two that each take away the other one's right wait here, and the second finds itself alone.
_LOCK_ADMINS = text(f"""
    SELECT user_name FROM users WHERE role = '{Role.ADMIN.value}' AND disabled_at IS NULL
    ORDER BY user_name FOR NO KEY UPDATE
""")
_ANY_PASSWORD = text("SELECT EXISTS (SELECT FROM users WHERE password_hash IS NOT NULL)")
# What a user may do, or how, has changed: tokens of before are refused from the commit on.
_SET = text("""
    UPDATE users SET role = :role, password_hash = coalesce(CAST(:password_hash AS text), password_hash),
                     disabled_at = CASE WHEN :disabled THEN coalesce(disabled_at, now()) END,
                     token_generation = token_generation + 1, updated_at = now()
    WHERE user_name = :name RETURNING *
""")
_REHASH = text("UPDATE users SET password_hash = :new WHERE user_name = :name AND password_hash = :old")
_LOGGED_IN = text("UPDATE users SET last_login_at = now() WHERE user_name = :name")


def add(connection: Connection, name: UserName, role: Role, password_hash: str | None) -> User:
    """Store a new user; a known name is a conflict."""
    values = {"name": name.value, "role": role.value, "password_hash": password_hash}
    row = connection.execute(_ADD, values).one_or_none()
    if row is None:
        raise Conflict(
            "CONFLICT_USER_EXISTS",
            korean=f"이미 있는 사용자입니다: {name}",
            english=f"The user {name} exists already",
        )
    return _user(row)


def add_first(connection: Connection, name: UserName, role: Role) -> bool:
    """Store a user without a password where there is no user at all; says whether that was so."""
    return connection.execute(_ADD_FIRST, {"name": name.value, "role": role.value}).one_or_none() is not None


def get(connection: Connection, name: UserName, *, lock: bool = False) -> User:
    """One user; an unknown one is an error."""
    row = connection.execute(_LOCK if lock else _GET, {"name": name.value}).one_or_none()
    if row is None:
        raise NotFound(
            "NOT_FOUND_USER",
            korean=f"사용자를 찾을 수 없습니다: {name}",
            english=f"There is no user {name}: see `mustit user list`",
        )
    return _user(row)


def credentials(connection: Connection, name: UserName) -> Credentials | None:
    """What a login is compared with."""
    row = connection.execute(_GET, {"name": name.value}).one_or_none()
    return None if row is None else Credentials(_user(row), row.password_hash)


def lock_credentials(connection: Connection, name: UserName) -> Credentials | None:
    """The same; until the transaction ends, the user is not disabled and the password not changed."""
    row = connection.execute(_LOCK, {"name": name.value}).one_or_none()
    return None if row is None else Credentials(_user(row), row.password_hash)


def all_users(connection: Connection) -> list[User]:
    """All users by name."""
    return [_user(row) for row in connection.execute(_ALL)]


def lock_admins(connection: Connection) -> list[UserName]:
    """The enabled admins; until the transaction ends, none of them is changed."""
    return [UserName(name) for name in connection.execute(_LOCK_ADMINS).scalars()]


def has_any_password(connection: Connection) -> bool:
    """Whether some user can log in with a password."""
    return connection.execute(_ANY_PASSWORD).scalar_one()


def change(connection: Connection, user: User, *, role: Role, disabled: bool, password_hash: str | None = None) -> User:
    """Write a user's role, password and whether it is disabled, and end the user's tokens."""
    values = {"name": user.name.value, "role": role.value, "disabled": disabled, "password_hash": password_hash}
    return _user(connection.execute(_SET, values).one())


def replace_hash(connection: Connection, name: UserName, *, old: str, new: str) -> None:
    """Store the same password's hash with other parameters, unless the password was changed meanwhile."""
    connection.execute(_REHASH, {"name": name.value, "old": old, "new": new})


def record_login(connection: Connection, name: UserName) -> None:
    """Remember when a user has logged in."""
    connection.execute(_LOGGED_IN, {"name": name.value})


def _user(row: Row[Any]) -> User:
    return User(
        name=UserName(row.user_name),
        role=Role(row.role),
        has_password=row.password_hash is not None,
        generation=row.token_generation,
        disabled_at=row.disabled_at,
        created_at=row.created_at,
        updated_at=row.updated_at,
        last_login_at=row.last_login_at,
    )
