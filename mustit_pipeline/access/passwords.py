"""Hashes of passwords, made and compared a few at a time: each takes 64 MiB of memory."""

import secrets
import threading
import unicodedata
from collections.abc import Generator
from contextlib import contextmanager
from functools import lru_cache

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from mustit_pipeline.domain.access import LONGEST_PASSWORD, Password
from mustit_pipeline.domain.errors import Unavailable

AT_ONCE = 2
# Each that waits keeps a thread of the server from all other requests: a crowd of logins gets half of them at most.
MOST_WAITING = 14
PATIENCE_SECONDS = 10.0
# The second choice of RFC 9106, argon2id: 64 MiB, three passes.
HASHER = PasswordHasher(time_cost=3, memory_cost=64 * 1024, parallelism=4)
_room = threading.BoundedSemaphore(AT_ONCE)
_line = threading.BoundedSemaphore(AT_ONCE + MOST_WAITING)


def hash_password(password: Password) -> str:
    """The argon2id hash that is stored."""
    with take_room():
        return HASHER.hash(password.value)


def rehash(password: str) -> str:
    """The hash of a password that was right, with the parameters of today."""
    with take_room():
        return HASHER.hash(_typed(password))


def matches(password_hash: str | None, password: str) -> bool:
    """Whether a typed password is the one; without a hash the same work is done in vain."""
    with take_room():
        try:
            found = HASHER.verify(password_hash or unknown_hash(), _typed(password))
        except (VerificationError, InvalidHashError):
            return False
    return found and password_hash is not None


def is_outdated(password_hash: str) -> bool:
    """Whether a hash was made with other parameters than those of today."""
    return HASHER.check_needs_rehash(password_hash)


def _typed(password: str) -> bytes:
    # Longer ones are never right; what a person could not have set must not break either.
    return unicodedata.normalize("NFC", password[: 16 * LONGEST_PASSWORD])[: LONGEST_PASSWORD + 1].encode(
        errors="replace"
    )


@lru_cache(maxsize=1)
def unknown_hash() -> str:
    """The hash of a random password."""
    return HASHER.hash(secrets.token_hex(32))


@contextmanager
def take_room() -> Generator[None]:
    if not _line.acquire(blocking=False):
        raise _crowded()
    try:
        if not _room.acquire(timeout=PATIENCE_SECONDS):
            raise _crowded()
        try:
            yield
        finally:
            _room.release()
    finally:
        _line.release()


def _crowded() -> Unavailable:
    return Unavailable(
        "UNAVAILABLE_LOGIN",
        korean="로그인 요청이 너무 많습니다. 잠시 후 다시 시도하세요",
        english="Too many logins at once: try again in a moment",
    )
