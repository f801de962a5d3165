"""Users: who may log in, and with which role. Every change of one ends the user's tokens at once."""

from dataclasses import dataclass

from sqlalchemy import Connection

from mustit_pipeline.access.passwords import hash_password
from mustit_pipeline.access.sql import users
from mustit_pipeline.access.sql.users import User
from mustit_pipeline.domain.access import Password, Role, UserName
from mustit_pipeline.domain.errors import Conflict
from mustit_pipeline.foundation.audited import State, Target
from mustit_pipeline.foundation.database import Database


@dataclass(frozen=True, slots=True)
class UserChange:
    """What is changed of a user; None stays as it is."""

    role: Role | None = None
    password: Password | None = None
    disabled: bool | None = None


def add(database: Database, name: UserName, role: Role, password: Password | None) -> User:
    """A new user; without a password only a login link lets the user in."""
    hashed = None if password is None else hash_password(password)
    with database.transaction() as connection:
        return users.add(connection, name, role, hashed)


def change(database: Database, name: UserName, wanted: UserChange) -> User:
    """Change a user, all at once or not at all; the last enabled admin stays one."""
    hashed = None if wanted.password is None else hash_password(wanted.password)
    with database.transaction() as connection:
        # Before the user's own row, so that two changes never wait for each other.
        admins = users.lock_admins(connection)
        user = users.get(connection, name, lock=True)
        role = wanted.role or user.role
        if wanted.disabled is not None:
            _require_other(user, disabled=wanted.disabled)
        disabled = user.is_disabled if wanted.disabled is None else wanted.disabled
        if admins == [name] and (disabled or role is not Role.ADMIN):
            raise Conflict(
                "CONFLICT_LAST_ADMIN",
                korean=f"{name}은(는) 마지막 관리자입니다. 먼저 다른 사용자를 admin으로 지정하세요",
                english=f"{name} is the last admin who can log in: make another user admin first",
            )
        if (role, disabled, hashed) == (user.role, user.is_disabled, None):
            return user
        return users.change(connection, user, role=role, disabled=disabled, password_hash=hashed)


def change_role(database: Database, name: UserName, role: Role) -> User:
    """Give a user another role; the same one changes nothing."""
    return change(database, name, UserChange(role=role))


def change_password(database: Database, name: UserName, password: Password) -> User:
    """Give a user another password."""
    return change(database, name, UserChange(password=password))


def disable(database: Database, name: UserName) -> User:
    """Let a user in no more."""
    return change(database, name, UserChange(disabled=True))


def enable(database: Database, name: UserName) -> User:
    """Let a user in again; tokens of before stay refused."""
    return change(database, name, UserChange(disabled=False))


def target(name: UserName, *, password: bool = False) -> Target:
    """A user as the audit log shows it; a change of the password is seen, the log shows nothing of it."""

    def seen(connection: Connection) -> State:
        user = users.get(connection, name)
        shown = {"role": user.role.value, "disabled": user.is_disabled}
        return {**shown, "password": user.generation} if password else shown

    return Target(f"user {name}", seen)


def _require_other(user: User, *, disabled: bool) -> None:
    if not user.is_disabled and not disabled:
        raise Conflict(
            "CONFLICT_USER_ALREADY_ENABLED",
            korean=f"이미 활성화된 사용자입니다: {user.name}",
            english=f"The user {user.name} is enabled already",
        )
    if user.is_disabled and disabled:
        raise Conflict(
            "CONFLICT_USER_ALREADY_DISABLED",
            korean=f"이미 비활성화된 사용자입니다: {user.name}",
            english=f"The user {user.name} is disabled already",
        )
