"""The credential that the product server is shown, told apart from others without keeping it."""

import hashlib
import hmac

from mustit_pipeline.settings import Settings


def fingerprint(settings: Settings) -> str:
    """The same for the same token; without our key it tells nothing about it."""
    token = settings.product_server_token
    shown = b"" if token is None else token.get_secret_value().encode()
    keys = settings.token_keys()
    return hmac.new(keys.keys[keys.current], shown, hashlib.sha256).hexdigest()[:32]
