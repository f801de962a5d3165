"""Session tokens, signed rather than stored, so that they outlive a restart of the server."""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256

import orjson

_HEADER = urlsafe_b64encode(b'{"alg":"HS256","typ":"JWT"}').rstrip(b"=").decode()
_REMEMBERED = 10_000


class Tokens:
    """Each token belongs to the user agent that it was issued to, until it expires."""

    def __init__(self, seed: int) -> None:
        self._key = sha256(f"marketplace tokens of seed {seed}".encode()).digest()
        self._known: dict[str, tuple[str, float]] = {}
        self._issued = 0

    def issue(self, agent: str, now: float, lifetime: float) -> str:
        """A fresh token."""
        self._issued += 1
        claims = orjson.dumps({"agent": agent, "expires": now + lifetime, "number": self._issued})
        payload = urlsafe_b64encode(claims).rstrip(b"=").decode()
        return f"{_HEADER}.{payload}.{self._signature(payload)}"

    def accepts(self, authorization: str, agent: str, now: float) -> bool:
        """Whether the Authorization header carries a token of that agent that is still good."""
        scheme, _, token = authorization.partition(" ")
        if scheme != "Bearer":
            return False
        known = self._known.get(token) or self._read(token)
        return known is not None and known[0] == agent and now < known[1]

    def forget(self) -> None:
        """Invalidate all tokens issued so far, as after a change of the key."""
        self._key = sha256(self._key).digest()
        self._known.clear()

    def _read(self, token: str) -> tuple[str, float] | None:
        parts = token.split(".")
        if len(parts) != 3 or not hmac.compare_digest(parts[2].encode(), self._signature(parts[1]).encode()):
            return None
        claims = orjson.loads(urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[token] = known = (claims["agent"], claims["expires"])
        return known

    def _signature(self, payload: str) -> str:
        digest = hmac.new(self._key, payload.encode(errors="replace"), sha256).digest()
        return urlsafe_b64encode(digest).rstrip(b"=").decode()
