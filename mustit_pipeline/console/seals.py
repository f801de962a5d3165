"""Short texts that come back from a browser as they were sent: tokens of forms, and notices for the next page."""

import base64
import binascii
import hashlib
import hmac
from enum import StrEnum

from mustit_pipeline.settings import SigningKeys


class Purpose(StrEnum):
    """What a seal is for; one for another purpose is no seal."""

    FORM = "form"
    NOTICE = "notice"


def seal(keys: SigningKeys, purpose: Purpose, text: str) -> str:
    """A signature of a text, made with the present key."""
    return _signature(keys.keys[keys.current], purpose, text)


def is_seal(keys: SigningKeys, purpose: Purpose, text: str, given: str) -> bool:
    """Whether a signature was made for this text, with any key that is still known."""
    return any(
        hmac.compare_digest(_signature(key, purpose, text).encode(), given.encode(errors="replace"))
        for key in keys.keys.values()
    )


def sealed(keys: SigningKeys, purpose: Purpose, text: str) -> str:
    """A text with its signature, for a cookie."""
    return f"{base64.urlsafe_b64encode(text.encode()).decode()}.{seal(keys, purpose, text)}"


def unsealed(keys: SigningKeys, purpose: Purpose, given: str) -> str | None:
    """The text, if its signature is ours."""
    body, _, signature = given.partition(".")
    try:
        text = base64.urlsafe_b64decode(body).decode()
    except (binascii.Error, ValueError):
        return None
    return text if is_seal(keys, purpose, text, signature) else None


def _signature(key: str | bytes, purpose: Purpose, text: str) -> str:
    secret = key.encode() if isinstance(key, str) else key
    return hmac.new(secret, f"console {purpose} {text}".encode(), hashlib.sha256).hexdigest()
