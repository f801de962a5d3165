"""What is known of an access token besides what it says: its user as it is now, and whether it was ended."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, text

from mustit_pipeline.foundation.aging import Aged

# A token that has expired is refused for that alone.
AGED = Aged("revoked_tokens", ("expires_at",))


@dataclass(frozen=True, slots=True)
class Standing:
    """The user of a token as it is now; no generation means that there is no such user."""

    revoked: bool
    generation: int | None
    disabled: bool


_STANDING = text("""
    SELECT EXISTS (SELECT FROM revoked_tokens WHERE jti = :jti) AS revoked, u.token_generation,
           u.disabled_at IS NOT NULL AS disabled
    FROM (VALUES (1)) AS one LEFT JOIN users u ON u.user_name = :name
""")
_REVOKE = text("INSERT INTO revoked_tokens (jti, expires_at) VALUES (:jti, :expires_at) ON CONFLICT (jti) DO NOTHING")


def standing(connection: Connection, jti: UUID, name: str) -> Standing:
    """How a token's id and its user stand."""
    row = connection.execute(_STANDING, {"jti": jti, "name": name}).one()
    return Standing(row.revoked, row.token_generation, row.disabled)


def revoke(connection: Connection, jti: UUID, expires_at: datetime) -> None:
    """End a token before its time."""
    connection.execute(_REVOKE, {"jti": jti, "expires_at": expires_at})
