"""Who is alive: a lock that PostgreSQL drops the moment its holder's process is gone."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from hashlib import blake2b

from sqlalchemy import func, select

from mustit_pipeline.store.database import Database


@contextmanager
def present(database: Database, run_id: str) -> Generator[None]:
    """Be seen alive as this run."""
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(select(func.pg_advisory_lock(_key(run_id))))
        try:
            yield
        finally:
            connection.execute(select(func.pg_advisory_unlock(_key(run_id))))


def absent(database: Database, run_ids: Sequence[str]) -> set[str]:
    """Those runs that no process is seen alive as."""
    if not run_ids:
        return set()
    free = [func.pg_try_advisory_xact_lock(_key(run_id)) for run_id in run_ids]
    with database.transaction() as connection:
        answers = connection.execute(select(*free)).one()
    return {run_id for run_id, answer in zip(run_ids, answers, strict=True) if answer}


def _key(run_id: str) -> int:
    return int.from_bytes(blake2b(run_id.encode(), digest_size=8).digest(), "big", signed=True)
