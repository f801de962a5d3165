"""Logging in with a password: slowed by account and address, and answered alike for known and unknown names."""

import hashlib
import ipaddress
import math

import structlog
from sqlalchemy.exc import SQLAlchemyError

from mustit_pipeline.access import passwords
from mustit_pipeline.access.sql import login_failures, users
from mustit_pipeline.access.sql.users import Credentials, User
from mustit_pipeline.access.tokens import AccessToken, issue
from mustit_pipeline.domain.access import UserName, login_wait
from mustit_pipeline.domain.errors import TooMany, Unauthorized, Unavailable, ValidationFailed
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database, is_away
from mustit_pipeline.settings import Settings

# An address from which the account has logged in is known for as long.
FAILURES_KEPT_DAYS = 30
UNKNOWN_USER = UserName("unknown")

log = structlog.get_logger(__name__)


def login(database: Database, settings: Settings, username: str, password: str, address: str | None) -> AccessToken:
    """A token for who knows the password."""
    return issue(settings.signing_keys(), authenticate(database, username, password, address), utc_now())


def authenticate(database: Database, username: str, password: str, address: str | None) -> User:
    """The user, for who knows the password.

    The try is counted before the password is looked at, so that tries side by side are counted too, and set back when
    it was right. If it cannot be counted, the login is refused.
    """
    try:
        return _authenticate(database, username, password, address)
    except SQLAlchemyError as error:
        if not is_away(error):
            raise
        log.warning("login refused", reason="the database cannot count it")
        raise Unavailable(
            "UNAVAILABLE_LOGIN",
            korean="지금은 로그인할 수 없습니다. 잠시 후 다시 시도하세요",
            english="Logins are refused for the moment: try again soon",
        ) from None


def _authenticate(database: Database, username: str, password: str, address: str | None) -> User:
    name = _user_name(username)
    account, origin = _account(username if name is None else name.value), _origin(address)
    known = _count(database, name, account, origin)
    try:
        right = passwords.matches(None if known is None else known.password_hash, password)
    except Unavailable:
        # The password was not checked: a crowd of other logins must not make its owner wait as well.
        with database.transaction() as connection:
            login_failures.take_back(connection, account, origin)
        raise
    if known is None or known.password_hash is None or not right or known.user.is_disabled:
        raise _refused(known, right=right)
    fresh = passwords.rehash(password) if passwords.is_outdated(known.password_hash) else None
    user = _let_in(database, known, account, origin, fresh)
    if user is None:
        raise _refused(known, right=False)
    return user


def _count(database: Database, name: UserName | None, account: str, origin: str) -> Credentials | None:
    """Count the try, or refuse it while it has to wait; says what the password is compared with."""
    with database.transaction() as connection:
        login_failures.lock(connection, account, origin)
        recent = login_failures.recent(connection, account, origin)
        wait = login_wait(recent.pair, recent.account, recent.address, known_address=recent.known_address)
        if wait > 0:
            seconds = math.ceil(wait)
            raise TooMany(
                "TOO_MANY_LOGINS",
                korean=f"로그인 시도가 너무 많습니다. {seconds}초 후에 다시 시도하세요",
                english=f"Too many failed logins: try again in {seconds} s",
                retry_after=seconds,
            )
        login_failures.add(connection, account, origin)
        # For an impossible name the same is done, in vain.
        found = users.credentials(connection, name or UNKNOWN_USER)
    return None if name is None else found


def _let_in(database: Database, known: Credentials, account: str, origin: str, fresh: str | None) -> User | None:
    """The user, unless disabled or given another password while this one was looked at."""
    with database.transaction() as connection:
        now = users.lock_credentials(connection, known.user.name)
        if now is None or now.user.is_disabled or now.password_hash != known.password_hash:
            return None
        login_failures.clear(connection, account, origin)
        users.record_login(connection, known.user.name)
        if fresh is not None and known.password_hash is not None:
            users.replace_hash(connection, known.user.name, old=known.password_hash, new=fresh)
        return now.user


def _user_name(username: str) -> UserName | None:
    try:
        return UserName(username)
    except ValidationFailed:
        return None


def _account(name: str) -> str:
    return hashlib.sha256(name.encode(errors="replace")).hexdigest()


def _origin(address: str | None) -> str:
    """Whom an address stands for: of IPv6 a household has a whole network."""
    try:
        found = ipaddress.ip_address(address or "")
    except ValueError:
        return "unknown"
    if found.version == 4:
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found.packed[:8] + bytes(8), 64)))


def _refused(known: Credentials | None, *, right: bool) -> Unauthorized:
    if known is None:
        reason = "unknown user"
    elif known.user.is_disabled and right:
        reason = "disabled"
    else:
        reason = "password"
    log.info("login refused", reason=reason)
    return Unauthorized(
        "UNAUTHORIZED_LOGIN",
        korean="사용자 이름 또는 비밀번호가 올바르지 않습니다",
        english="The user name or the password is wrong",
        reason=reason,
    )
