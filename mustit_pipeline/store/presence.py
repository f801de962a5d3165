"""Who is alive: a lock that PostgreSQL drops the moment its holder's process is gone."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from threading import Event, Thread

from sqlalchemy import Connection, func, select
from sqlalchemy.exc import SQLAlchemyError

from mustit_pipeline.store.database import Database

LOOK_SECONDS = 1.0


@contextmanager
def present(database: Database, run_id: str) -> Generator[None]:
    """Be seen alive as this run, and soon again after PostgreSQL was away."""
    over = Event()
    keeper = Thread(target=_keep, args=(database, run_id, _hold(database, run_id), over), daemon=True)
    keeper.start()
    try:
        yield
    finally:
        over.set()
        keeper.join()


def absent(database: Database, run_ids: Sequence[str]) -> set[str]:
    """Those runs that no process is seen alive as."""
    if not run_ids:
        return set()
    free = [func.pg_try_advisory_xact_lock(_key(run_id)) for run_id in run_ids]
    with database.transaction() as connection:
        answers = connection.execute(select(*free)).one()
    return {run_id for run_id, answer in zip(run_ids, answers, strict=True) if answer}


def _hold(database: Database, run_id: str) -> Connection:
    """A connection that holds the lock."""
    connection = database.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
    try:
        connection.execute(select(func.pg_advisory_lock(_key(run_id))))
    except BaseException:
        connection.close()
        raise
    return connection


def _keep(database: Database, run_id: str, connection: Connection | None, over: Event) -> None:
    """Look after the lock until it is over: a connection that breaks takes it along, while its process may go on."""
    while not over.wait(LOOK_SECONDS):
        try:
            if connection is None:
                connection = _hold(database, run_id)
            connection.execute(select(1))
        except SQLAlchemyError:
            if connection is not None:
                connection.close()
            connection = None
    if connection is not None:
        with suppress(SQLAlchemyError), connection:
            connection.execute(select(func.pg_advisory_unlock(_key(run_id))))


def _key(run_id: str) -> int:
    return int.from_bytes(blake2b(run_id.encode(), digest_size=8).digest(), "big", signed=True)
