"""Secrets that carry the id of their row: `mk_<id>_<secret>` for API keys, `ml_<id>_<secret>` for login links."""

import hashlib
import re
import secrets
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class KeyedSecret:
    """A new secret: its text is shown once, its hash is stored."""

    id: str
    text: str = field(repr=False)
    hash: bytes = field(repr=False)


def make(prefix: str) -> KeyedSecret:
    """A secret of 256 random bits: a plain hash of it cannot be guessed back."""
    key_id, secret = secrets.token_hex(6), secrets.token_hex(32)
    return KeyedSecret(key_id, f"{prefix}_{key_id}_{secret}", _hash(secret))


def read(prefix: str, text: str) -> tuple[str, bytes] | None:
    """The id and the hash of a presented secret; None where it has another form."""
    match = re.fullmatch(rf"{prefix}_([0-9a-f]{{12}})_([0-9a-f]{{64}})", text)
    return None if match is None else (match[1], _hash(match[2]))


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
