"""The advisory locks of PostgreSQL: every key in one place, so that no two mean different things by the same number.

ARCHITECTURE.md says who takes which, what for, and what a second one does.
"""

from enum import IntEnum, StrEnum
from hashlib import blake2b

from sqlalchemy import Connection, text


class Only(IntEnum):
    """Locks of which there is one in a database."""

    SCHEMA_UPGRADE = 4_871_209_365
    REQUEST_COUNTER = 4_871_209_366
    MAINTENANCE = 4_871_209_367
    PRODUCT_OUTBOX_CLAIM = 4_871_209_368
    SCHEDULER_OUTBOX_CLAIM = 4_871_209_369
    TASK_PARTITIONS = 4_871_209_370


class PerName(StrEnum):
    """Locks of which there is one for each name: their keys are 64 bits of a hash, far apart from those above."""

    CATALOG = "catalog"
    ALIVE = "alive"
    AUDIT = "audit"
    API_KEY = "api key"
    LOGIN_ACCOUNT = "login account"
    LOGIN_ADDRESS = "login address"

    def of(self, name: str) -> int:
        """The key for this name; the same name under two kinds has two keys."""
        digest = blake2b(f"{self.value} {name}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big", signed=True)


class Numbered(IntEnum):
    """Families of locks by number: keys of two integers, which PostgreSQL keeps apart from those above."""

    TALLY_SLOT = 48_712_093


_LOCK = text("SELECT pg_advisory_xact_lock(:key)")
_LOCK_SHARED = text("SELECT pg_advisory_xact_lock_shared(:key)")


def lock(connection: Connection, key: int) -> None:
    """Hold a lock alone until the transaction ends; others wait for it."""
    connection.execute(_LOCK, {"key": key})


def lock_shared(connection: Connection, key: int) -> None:
    """Hold a lock together with others until the transaction ends; one that wants it alone waits for all of them."""
    connection.execute(_LOCK_SHARED, {"key": key})
