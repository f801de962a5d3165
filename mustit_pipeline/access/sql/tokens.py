"""What is known of an access token besides what it says: its user as it is now, and whether it was ended."""

from collections.abc import Collection
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


@dataclass(frozen=True, slots=True)
class HeldToken:
    """A token that is in use for a while; one without a user has no generation."""

    jti: UUID
    name: str
    generation: int | None


_STANDING = text("""
    SELECT EXISTS (SELECT FROM revoked_tokens WHERE jti = :jti) AS revoked, u.token_generation,
           u.disabled_at IS NOT NULL AS disabled
    FROM (VALUES (1)) AS one LEFT JOIN users u ON u.user_name = :name
""")
_ENDED = text("""
    SELECT held.jti
    FROM unnest(CAST(:jtis AS uuid[]), CAST(:names AS text[]), CAST(:generations AS int[]))
         AS held(jti, user_name, generation)
    CROSS JOIN LATERAL (
        SELECT (SELECT r.jti FROM revoked_tokens r WHERE r.jti = held.jti) AS revoked,
               (SELECT u.token_generation FROM users u
                WHERE u.user_name = held.user_name AND u.disabled_at IS NULL) AS generation
    ) AS present
    WHERE present.revoked IS NOT NULL
       OR (held.generation IS NOT NULL AND held.generation IS DISTINCT FROM present.generation)
""")
_REVOKE = text("INSERT INTO revoked_tokens (jti, expires_at) VALUES (:jti, :expires_at) ON CONFLICT (jti) DO NOTHING")


def standing(connection: Connection, jti: UUID, name: str) -> Standing:
    """How a token's id and its user stand."""
    row = connection.execute(_STANDING, {"jti": jti, "name": name}).one()
    return Standing(row.revoked, row.token_generation, row.disabled)


def ended(connection: Connection, held: Collection[HeldToken]) -> set[UUID]:
    """The ids of those tokens that were ended, or whose user is gone, disabled or of another generation."""
    values = {
        "jtis": [one.jti for one in held],
        "names": [one.name for one in held],
        "generations": [one.generation for one in held],
    }
    return set(connection.execute(_ENDED, values).scalars())


def revoke(connection: Connection, jti: UUID, expires_at: datetime) -> None:
    """End a token before its time."""
    connection.execute(_REVOKE, {"jti": jti, "expires_at": expires_at})
