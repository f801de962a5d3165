"""Keys for tokens at rest and for access tokens, and secrets that are generated once if none is given."""

import base64
import hashlib
import os
import re
import secrets
from pathlib import Path

from mustit_pipeline.settings.wrong_setting import WrongSetting

UNNAMED = "k0"
SHORTEST_SIGNING_KEY = 32
KEYS = "takes 32 bytes in base64, or kid:key[,kid:key]"
KEYS_KOREAN = "base64로 쓴 32바이트, 또는 kid:key[,kid:key]여야 합니다"


class TokenKey:
    """The AES-256 keys that protect tokens at rest: the first encrypts, all decrypt."""

    def __init__(self, text: str) -> None:
        self.keys: dict[str, bytes] = {}
        for part in text.split(","):
            kid, colon, encoded = part.strip().rpartition(":")
            try:
                key = base64.b64decode(encoded, validate=True)
            except ValueError as error:
                raise WrongSetting(KEYS, korean=KEYS_KOREAN) from error
            if len(key) != 32 or (colon and not kid) or ":" in kid:
                raise WrongSetting(KEYS, korean=KEYS_KOREAN)
            # The same name at any position: a name by position would change when another key is put before it.
            name = kid or UNNAMED
            if name in self.keys:
                raise WrongSetting(
                    f"names the key id {name!r} twice; a key without a name is {UNNAMED}",
                    korean=f"키 이름 {name!r}이(가) 두 번 나옵니다. 이름이 없는 키는 {UNNAMED}입니다",
                )
            self.keys[name] = key
        self.current = next(iter(self.keys))


class SigningKeys:
    """The secrets that sign access tokens: the first signs, all verify. One without a name is named by its hash."""

    def __init__(self, text: str) -> None:
        self.keys: dict[str, bytes] = {}
        for part in text.split(","):
            name, colon, secret = part.strip().rpartition(":")
            if len(secret) < SHORTEST_SIGNING_KEY or (colon and not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", name)):
                raise WrongSetting(
                    f"takes at least {SHORTEST_SIGNING_KEY} characters, or kid:secret[,kid:secret] with as many each",
                    korean=f"{SHORTEST_SIGNING_KEY}자 이상이거나, 각각 그 길이인 kid:secret[,kid:secret]이어야 합니다",
                )
            key = secret.encode()
            kid = name or hashlib.sha256(b"kid:" + key).hexdigest()[:16]
            if kid in self.keys:
                raise WrongSetting(f"names the key id {kid!r} twice", korean=f"키 이름 {kid!r}이(가) 두 번 나옵니다")
            self.keys[kid] = key
        self.current = next(iter(self.keys))


def made_once(home: Path, name: str) -> str:
    """32 random bytes in base64, in their own file with mode 0600; the first process that needs them creates it."""
    folder = home / "secrets"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    target = folder / name
    if not target.exists():
        fresh = folder / f".{name}.{os.getpid()}.{secrets.token_hex(4)}"
        descriptor = os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(base64.b64encode(secrets.token_bytes(32)).decode())
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(fresh, target)
        except FileExistsError:
            pass
        finally:
            fresh.unlink()
    return target.read_text()
