"""Sessions of the console: they last for a working day while they are used, and end at once for what ends tokens."""

from datetime import datetime, timedelta
from uuid import uuid4

from sqlalchemy import Connection

from mustit_pipeline.access import tokens
from mustit_pipeline.access.sql import tokens as ended_tokens
from mustit_pipeline.access.sql.users import User
from mustit_pipeline.access.tokens import AccessToken, Audience, Identity, issue_for_console
from mustit_pipeline.domain.access import Role
from mustit_pipeline.settings import SigningKeys

# A page that is open is renewed long before; a browser that was closed for longer logs in again.
IDLE = timedelta(minutes=60)
LONGEST = timedelta(hours=12)


def open_session(keys: SigningKeys, user: User, now: datetime) -> AccessToken:
    """The first token of a new session."""
    return issue_for_console(
        keys,
        user.name.value,
        user.role,
        generation=user.generation,
        session=uuid4(),
        logged_in_at=now,
        now=now,
        lifetime=IDLE,
    )


def verify(connection: Connection, keys: SigningKeys, text: str) -> Identity:
    """Who a session's token speaks for."""
    return tokens.verify(connection, keys, text, Audience.CONSOLE)


def renewed(keys: SigningKeys, identity: Identity, now: datetime) -> AccessToken | None:
    """Another token of the session once half of this one's life is over; never beyond the longest session."""
    assert identity.logged_in_at is not None
    ends_at = min(now + IDLE, identity.logged_in_at + LONGEST)
    if identity.expires_at - now > IDLE / 2 or ends_at <= max(identity.expires_at, now):
        return None
    return issue_for_console(
        keys,
        identity.name,
        Role(identity.role),
        generation=identity.generation,
        session=identity.jti,
        logged_in_at=identity.logged_in_at,
        now=now,
        lifetime=ends_at - now,
    )


def end(connection: Connection, identity: Identity) -> None:
    """Log out: every token of the session is refused from the commit on."""
    assert identity.logged_in_at is not None
    ended_tokens.revoke(connection, identity.jti, identity.logged_in_at + LONGEST + tokens.LEEWAY)
