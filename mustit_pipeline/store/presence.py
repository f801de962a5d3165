"""Who is alive: a lock that PostgreSQL drops the moment its holder's process is gone."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from hashlib import blake2b

from sqlalchemy import func, select, text

from mustit_pipeline.store.database import Database


@contextmanager
def present(database: Database, name: str) -> Generator[None]:
    """Be seen alive as this run, or at this work; others may be at the same work."""
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(select(func.pg_advisory_lock_shared(_key(name))))
        try:
            yield
        finally:
            connection.execute(select(func.pg_advisory_unlock_shared(_key(name))))


def absent(database: Database, names: Sequence[str]) -> set[str]:
    """Those that no process is seen alive as."""
    named = {_key(name): name for name in names}
    query = text("SELECT key FROM unnest(CAST(:keys AS bigint[])) AS key WHERE pg_try_advisory_xact_lock(key)")
    with database.transaction() as connection:
        return {named[key] for key in connection.execute(query, {"keys": list(named)}).scalars()}


def _key(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big", signed=True)
