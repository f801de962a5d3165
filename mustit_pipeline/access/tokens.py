"""Access tokens: signed, short-lived, and refused at once when they are ended or their user changes."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID, uuid4

import jwt
import structlog
from sqlalchemy import Connection

from mustit_pipeline.access.sql import tokens
from mustit_pipeline.access.sql.audit_log import Actor
from mustit_pipeline.access.sql.tokens import HeldToken
from mustit_pipeline.access.sql.users import User
from mustit_pipeline.domain.access import ActorKind, Role
from mustit_pipeline.domain.errors import Forbidden, Unauthorized, ValidationFailed
from mustit_pipeline.settings import SigningKeys

ALGORITHM = "HS256"
ISSUER = "mustit"
LIFETIME, LONGEST_LIFETIME = timedelta(minutes=15), timedelta(hours=24)
# Hosts whose clocks differ by more have other troubles.
LEEWAY = timedelta(seconds=5)
LONGEST_TEXT = 4096
REQUIRED = ["exp", "iat", "nbf", "sub", "aud", "iss", "jti", "role", "gen"]
# No user name has a colon.
CLI_PREFIX = "cli:"

log = structlog.get_logger(__name__)


class Audience(StrEnum):
    """What a token opens; one of the API opens no page of the console, nor the other way round."""

    API = "mustit-api"
    CONSOLE = "mustit-console"


class TokenRefusal(StrEnum):
    """Why a token is refused: for our logs, never for who sent it."""

    MISSING = "missing"
    MALFORMED = "malformed"
    ALGORITHM = "algorithm"
    UNKNOWN_KEY = "unknown key"
    SIGNATURE = "signature"
    CLAIMS = "claims"
    EXPIRED = "expired"
    NOT_YET_VALID = "not yet valid"
    AUDIENCE = "audience"
    ISSUER = "issuer"
    REVOKED = "revoked"
    UNKNOWN_USER = "unknown user"
    DISABLED = "disabled"
    GENERATION = "generation"


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A new token; its text is in no log and no `repr`."""

    text: str = field(repr=False)
    expires_in: int
    expires_at: datetime
    jti: UUID
    role: Role


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a valid token speaks for: a user, or the command line of an operator."""

    name: str
    role: Role
    jti: UUID
    expires_at: datetime
    kind: ActorKind = ActorKind.PERSON
    generation: int = 0
    # When the user has shown who they are; a token of the console is renewed without that.
    logged_in_at: datetime | None = None

    def require(self, role: Role) -> None:
        """Refuse what needs another role."""
        if not self.role.includes(role):
            raise Forbidden(
                "FORBIDDEN_ROLE",
                korean=f"{role} 권한이 필요합니다",
                english=f"This needs the role {role}",
            )

    def actor(self, *, request_id: str | None = None, address: str | None = None) -> Actor:
        """The same as the audit log names it."""
        return Actor(self.kind, self.name.removeprefix(CLI_PREFIX), request_id, address)


def issue(keys: SigningKeys, user: User, now: datetime) -> AccessToken:
    """A token for a user who has shown who they are."""
    return _signed(keys, user.name.value, user.role, generation=user.generation, now=now, lifetime=LIFETIME)


def issue_for_console(
    keys: SigningKeys,
    name: str,
    role: Role,
    *,
    generation: int,
    session: UUID,
    logged_in_at: datetime,
    now: datetime,
    lifetime: timedelta,
) -> AccessToken:
    """A token of a console session: all of a session have one id, so that ending it ends each of them."""
    return _signed(
        keys,
        name,
        role,
        generation=generation,
        now=now,
        lifetime=lifetime,
        audience=Audience.CONSOLE,
        jti=session,
        more={"auth_time": int(logged_in_at.timestamp())},
    )


def issue_for_cli(keys: SigningKeys, operator: str, role: Role, now: datetime, lifetime: timedelta) -> AccessToken:
    """A token without a user, for an operator with the signing key; it ends by its time, by its id or with its key."""
    if not timedelta(0) < lifetime <= LONGEST_LIFETIME:
        raise ValidationFailed(
            "VALIDATION_TOKEN_LIFETIME",
            korean="토큰 유효 기간은 24시간을 넘을 수 없습니다",
            english="A token lives for at most 24 hours",
        )
    return _signed(keys, f"{CLI_PREFIX}{operator}", role, generation=0, now=now, lifetime=lifetime)


def verify(connection: Connection, keys: SigningKeys, text: str, audience: Audience = Audience.API) -> Identity:
    """Who a token speaks for; each refusal looks the same from outside."""
    claims = _claims(keys, text, audience)
    try:
        role, jti, name, generation = Role(claims["role"]), UUID(claims["jti"]), claims["sub"], claims["gen"]
    except ValueError:
        raise refused(TokenRefusal.CLAIMS) from None
    if type(generation) is not int:
        raise refused(TokenRefusal.CLAIMS)
    auth_time = claims.get("auth_time")
    logged_in_at = datetime.fromtimestamp(auth_time, UTC) if type(auth_time) is int else None
    if audience is Audience.CONSOLE and logged_in_at is None:
        raise refused(TokenRefusal.CLAIMS)
    by_cli = name.startswith(CLI_PREFIX)
    standing = tokens.standing(connection, jti, name)
    if standing.revoked:
        raise refused(TokenRefusal.REVOKED)
    if not by_cli:
        if standing.generation is None:
            raise refused(TokenRefusal.UNKNOWN_USER)
        if standing.disabled:
            raise refused(TokenRefusal.DISABLED)
        if standing.generation != generation:
            raise refused(TokenRefusal.GENERATION)
    expires_at = datetime.fromtimestamp(claims["exp"], UTC)
    kind = ActorKind.CLI if by_cli else ActorKind.PERSON
    return Identity(name, role, jti, expires_at, kind, generation, logged_in_at)


def ended(connection: Connection, identities: Collection[Identity]) -> set[UUID]:
    """The ids of those tokens, valid when they were verified, that `verify` would refuse for their user or their id."""
    return tokens.ended(
        connection,
        [HeldToken(one.jti, one.name, None if one.kind is ActorKind.CLI else one.generation) for one in identities],
    )


def revoke(connection: Connection, identity: Identity) -> None:
    """Log out: the token is refused from the commit on."""
    tokens.revoke(connection, identity.jti, identity.expires_at + LEEWAY)


def revoke_by_id(connection: Connection, jti: UUID, now: datetime) -> None:
    """End a token of which only the id is known, for as long as any token can live."""
    tokens.revoke(connection, jti, now + LONGEST_LIFETIME + LEEWAY)


def _signed(
    keys: SigningKeys,
    subject: str,
    role: Role,
    *,
    generation: int,
    now: datetime,
    lifetime: timedelta,
    audience: Audience = Audience.API,
    jti: UUID | None = None,
    more: Mapping[str, int] | None = None,
) -> AccessToken:
    now = now.replace(microsecond=0)
    jti, expires_at = jti or uuid4(), now + lifetime
    claims = {
        "iss": ISSUER,
        "aud": audience.value,
        "sub": subject,
        "jti": str(jti),
        "role": role.value,
        "gen": generation,
        "iat": now,
        "nbf": now,
        "exp": expires_at,
        **(more or {}),
    }
    text = jwt.encode(claims, keys.keys[keys.current], ALGORITHM, headers={"kid": keys.current})
    return AccessToken(text, int(lifetime.total_seconds()), expires_at, jti, role)


def _claims(keys: SigningKeys, text: str, audience: Audience) -> dict[str, Any]:
    """What a token says, once its form, key, signature and time have been found good."""
    if len(text) > LONGEST_TEXT or not text.isascii():
        raise refused(TokenRefusal.MALFORMED)
    try:
        header = jwt.get_unverified_header(text)
        # Said here and to the library: the token does not choose the algorithm.
        if header.get("alg") != ALGORITHM:
            raise refused(TokenRefusal.ALGORITHM)
        key = keys.keys.get(str(header.get("kid")))
        if key is None:
            raise refused(TokenRefusal.UNKNOWN_KEY)
        return jwt.decode(
            text,
            key,
            algorithms=[ALGORITHM],
            audience=audience.value,
            issuer=ISSUER,
            leeway=LEEWAY,
            options={"require": REQUIRED, "strict_aud": True},
        )
    except jwt.InvalidTokenError as error:
        raise refused(_reason(error)) from None


_REASONS = {
    jwt.ExpiredSignatureError: TokenRefusal.EXPIRED,
    jwt.ImmatureSignatureError: TokenRefusal.NOT_YET_VALID,
    jwt.InvalidAudienceError: TokenRefusal.AUDIENCE,
    jwt.InvalidIssuerError: TokenRefusal.ISSUER,
    jwt.InvalidSignatureError: TokenRefusal.SIGNATURE,
    jwt.InvalidAlgorithmError: TokenRefusal.ALGORITHM,
    jwt.DecodeError: TokenRefusal.MALFORMED,
}


def _reason(error: jwt.InvalidTokenError) -> TokenRefusal:
    return next((reason for kind, reason in _REASONS.items() if isinstance(error, kind)), TokenRefusal.CLAIMS)


def refused(reason: TokenRefusal) -> Unauthorized:
    """The same answer to every token that opens nothing; the reason is for our log."""
    log.info("access token refused", reason=reason.value)
    return Unauthorized(
        "UNAUTHORIZED_TOKEN",
        korean="로그인이 필요합니다",
        english="Log in first: the access token is missing, wrong or over",
        reason=reason.value,
    )
