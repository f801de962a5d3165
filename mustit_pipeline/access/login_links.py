"""Links that log a user in once, for the first start and for users without a password."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog

from mustit_pipeline.access import audit, keyed_secrets
from mustit_pipeline.access.sql import login_links, users
from mustit_pipeline.access.sql.audit_log import Actor
from mustit_pipeline.access.sql.users import User
from mustit_pipeline.domain.access import ActorKind, Role, UserName
from mustit_pipeline.domain.errors import Unauthorized
from mustit_pipeline.foundation.database import Database

PREFIX = "ml"
LIFETIME = timedelta(minutes=10)
FIRST_ADMIN = UserName("admin")

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LoginLink:
    """A secret that opens one login; no access token."""

    text: str = field(repr=False)
    user_name: UserName
    expires_at: datetime

    @property
    def path(self) -> str:
        """The page of the console that takes it."""
        return f"/login/link?key={self.text}"


def make_link(database: Database, name: UserName) -> LoginLink:
    """A link for a user."""
    secret = keyed_secrets.make(PREFIX)
    with database.transaction() as connection:
        users.get(connection, name)
        expires_at = login_links.add(connection, secret.id, secret.hash, name, LIFETIME.total_seconds())
    return LoginLink(secret.text, name, expires_at)


def make_first_admin_link(database: Database) -> LoginLink | None:
    """Make the first admin where there is no user, and a link for it; None once some user has a password."""
    with database.transaction() as connection:
        if users.has_any_password(connection):
            return None
        if users.add_first(connection, FIRST_ADMIN, Role.ADMIN):
            after = {"role": Role.ADMIN.value, "disabled": False}
            actor = Actor(ActorKind.SYSTEM, "first start")
            audit.record(connection, actor, "user.add", f"user {FIRST_ADMIN}", before=None, after=after)
        if all(user.name != FIRST_ADMIN or user.is_disabled for user in users.all_users(connection)):
            return None
    return make_link(database, FIRST_ADMIN)


def use_link(database: Database, text: str) -> User:
    """The user of a link, which is used up by that."""
    presented = keyed_secrets.read(PREFIX, text)
    if presented is None:
        raise _refused("malformed")
    with database.transaction() as connection:
        name = login_links.take(connection, *presented)
        user = None if name is None else users.get(connection, name, lock=True)
        if user is not None and not user.is_disabled:
            users.record_login(connection, user.name)
    # Outside: a link of a disabled user is used up all the same.
    if user is None or user.is_disabled:
        raise _refused("unknown, used or over" if user is None else "disabled")
    return user


def _refused(reason: str) -> Unauthorized:
    log.info("login link refused", reason=reason)
    return Unauthorized(
        "UNAUTHORIZED_LOGIN_LINK",
        korean="로그인 링크가 잘못되었거나 이미 사용되었거나 만료되었습니다",
        english="The login link is wrong, used or over",
        reason=reason,
    )
