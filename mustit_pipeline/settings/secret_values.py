"""Every secret text that the settings hold, for those who must keep them out of what they write."""

from contextlib import suppress
from typing import cast
from urllib.parse import unquote, urlsplit

from pydantic import SecretStr

from mustit_pipeline.settings.whole import Settings

# Shorter texts would also hide harmless words.
SHORTEST = 6


def secret_values(settings: Settings) -> frozenset[str]:
    """Passwords, keys and tokens: whole, and each key of a list of keys; those made under HOME too."""
    found: set[str] = set()
    for name in type(settings).model_fields:
        value = cast("object", getattr(settings, name))
        if isinstance(value, SecretStr):
            found |= _parts(value.get_secret_value())
        elif isinstance(value, str) and "://" in value:
            found |= _password(value)
    for name in ("token_key", "jwt_secret"):
        with suppress(OSError):
            found |= _parts((settings.home / "secrets" / name).read_text())
    return frozenset(text for text in found if len(text) >= SHORTEST)


def _parts(text: str) -> set[str]:
    """A list of keys is `kid:key,kid:key`; one of addresses is separated by blanks too."""
    pieces = {piece for part in text.split(",") for piece in part.split()}
    return {text, *pieces, *(piece.rpartition(":")[2] for piece in pieces if "://" not in piece)}


def _password(address: str) -> set[str]:
    with suppress(ValueError):
        given = urlsplit(address).password
        return set() if given is None else {given, unquote(given)}
    return set()
