"""Sessions at rest: AES-256-GCM, each bound to its row, its token number and its key."""

import os
from datetime import datetime, timedelta
from uuid import UUID

import orjson
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from mustit_pipeline.agents.sql.agents import SealedSession
from mustit_pipeline.domain.values import Token
from mustit_pipeline.marketplace.session import LONGEST_LIFETIME, USUAL_LIFETIME, Session
from mustit_pipeline.settings import TokenKey

NONCE_BYTES = 12


class SessionUnreadable(Exception):
    """A sealed session that none of our keys opens; the message never holds its content."""


class SessionVault:
    """Seals with the first key and opens with any, so that keys can be rotated without losing sessions."""

    def __init__(self, keys: TokenKey) -> None:
        self._current = keys.current
        self._ciphers = {key_id: AESGCM(key) for key_id, key in keys.keys.items()}

    def seal(self, agent_id: UUID, token_no: int, session: Session) -> SealedSession:
        """The session, sealed for this agent's row and no other."""
        content = orjson.dumps(
            {
                "token": session.token.value,
                "nid": session.nid,
                "mustit_uid": session.mustit_uid,
                "expires_at": session.expires_at.isoformat(),
                "lifetime": session.lifetime.total_seconds(),
            }
        )
        nonce = os.urandom(NONCE_BYTES)
        sealed = self._ciphers[self._current].encrypt(nonce, content, _binding(agent_id, token_no, self._current))
        return SealedSession(token_no, self._current, nonce + sealed)

    def open(self, agent_id: UUID, stored: SealedSession) -> Session:
        """The session in an agent's row, or SessionUnreadable."""
        cipher = self._ciphers.get(stored.key_id)
        if cipher is None:
            raise SessionUnreadable(
                f"the session of agent {agent_id} needs the key {stored.key_id!r}, which is not set"
            )
        nonce, sealed = stored.sealed[:NONCE_BYTES], stored.sealed[NONCE_BYTES:]
        try:
            content = cipher.decrypt(nonce, sealed, _binding(agent_id, stored.token_no, stored.key_id))
        except (InvalidTag, ValueError):
            raise SessionUnreadable(f"the session of agent {agent_id} does not open with its key") from None
        fields = orjson.loads(content)
        expires_at = datetime.fromisoformat(fields["expires_at"])
        # Older sealed sessions have no lifetime: the usual one is taken. Others may have a longer one than allowed.
        lifetime = timedelta(seconds=fields["lifetime"]) if "lifetime" in fields else USUAL_LIFETIME
        kept = min(lifetime, LONGEST_LIFETIME)
        return Session(
            token=Token(fields["token"]),
            nid=fields["nid"],
            mustit_uid=fields["mustit_uid"],
            expires_at=expires_at - (lifetime - kept),
            lifetime=kept,
        )

    def is_outdated(self, stored: SealedSession) -> bool:
        """Whether it is sealed with an older key."""
        return stored.key_id != self._current


def _binding(agent_id: UUID, token_no: int, key_id: str) -> bytes:
    return f"mustit user_agents {agent_id} {token_no} {key_id}".encode()
