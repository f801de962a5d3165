"""Liveness: an advisory lock, which PostgreSQL releases as soon as its holder's process is gone."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from threading import Event, Thread

from sqlalchemy import Connection, func, select, text
from sqlalchemy.exc import SQLAlchemyError

from mustit_pipeline.foundation.advisory_locks import PerName
from mustit_pipeline.foundation.database import Database

LOOK_SECONDS = 1.0


@contextmanager
def hold_liveness(database: Database, name: str) -> Generator[None]:
    """Hold the liveness lock of this name, and retake it after an outage; several processes may share it."""
    over = Event()
    keeper = Thread(target=_keep, args=(database, name, _hold(database, name), over), daemon=True)
    keeper.start()
    try:
        yield
    finally:
        over.set()
        keeper.join()


def find_dead(database: Database, names: Sequence[str]) -> set[str]:
    """Those that no process is seen alive as."""
    named = {PerName.ALIVE.of(name): name for name in names}
    query = text("SELECT key FROM unnest(CAST(:keys AS bigint[])) AS key WHERE pg_try_advisory_xact_lock(key)")
    with database.transaction() as connection:
        return {named[key] for key in connection.execute(query, {"keys": list(named)}).scalars()}


def _hold(database: Database, name: str) -> Connection:
    """A connection that holds the lock."""
    connection = database.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
    try:
        connection.execute(select(func.pg_advisory_lock_shared(PerName.ALIVE.of(name))))
    except BaseException:
        connection.close()
        raise
    return connection


def _keep(database: Database, name: str, connection: Connection | None, over: Event) -> None:
    """Keep the lock until the work is over: a broken connection loses it while its process goes on."""
    while not over.wait(LOOK_SECONDS):
        try:
            if connection is None:
                connection = _hold(database, name)
            connection.execute(select(1))
        except SQLAlchemyError:
            if connection is not None:
                connection.close()
            connection = None
    if connection is not None:
        with suppress(SQLAlchemyError), connection:
            connection.execute(select(func.pg_advisory_unlock_shared(PerName.ALIVE.of(name))))
