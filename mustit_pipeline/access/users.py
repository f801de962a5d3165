"""Users: who may log in, and with which role. Every change of one ends the user's tokens at once."""

from sqlalchemy import Connection

from mustit_pipeline.access.audit import Look, State
from mustit_pipeline.access.passwords import hash_password
from mustit_pipeline.access.sql import users
from mustit_pipeline.access.sql.users import User
from mustit_pipeline.domain.access import Password, Role, UserName
from mustit_pipeline.domain.errors import Conflict
from mustit_pipeline.foundation.database import Database


def add(database: Database, name: UserName, role: Role, password: Password | None) -> User:
    """A new user; without a password only a login link lets the user in."""
    hashed = None if password is None else hash_password(password)
    with database.transaction() as connection:
        return users.add(connection, name, role, hashed)


def change_role(database: Database, name: UserName, role: Role) -> User:
    """Give a user another role; the same one changes nothing."""
    with database.transaction() as connection:
        user = users.get(connection, name, lock=True)
        if user.role is role:
            return user
        return users.change(connection, user, role=role, disabled=user.is_disabled)


def change_password(database: Database, name: UserName, password: Password) -> User:
    """Give a user another password."""
    hashed = hash_password(password)
    with database.transaction() as connection:
        user = users.get(connection, name, lock=True)
        return users.change(connection, user, role=user.role, disabled=user.is_disabled, password_hash=hashed)


def disable(database: Database, name: UserName) -> User:
    """Let a user in no more."""
    with database.transaction() as connection:
        user = users.get(connection, name, lock=True)
        if user.is_disabled:
            raise Conflict(
                "CONFLICT_USER_ALREADY_DISABLED",
                korean=f"이미 비활성화된 사용자입니다: {name}",
                english=f"The user {name} is disabled already",
            )
        return users.change(connection, user, role=user.role, disabled=True)


def enable(database: Database, name: UserName) -> User:
    """Let a user in again; tokens of before stay refused."""
    with database.transaction() as connection:
        user = users.get(connection, name, lock=True)
        if not user.is_disabled:
            raise Conflict(
                "CONFLICT_USER_ALREADY_ENABLED",
                korean=f"이미 활성화된 사용자입니다: {name}",
                english=f"The user {name} is enabled already",
            )
        return users.change(connection, user, role=user.role, disabled=False)


def look(name: UserName) -> Look:
    """A user as the audit log shows it."""

    def seen(connection: Connection) -> State:
        user = users.get(connection, name)
        return {"role": user.role.value, "disabled": user.is_disabled}

    return seen
