"""Access to PostgreSQL: addresses, engine, and the check that code and schema fit together."""

import asyncio
import re
import select
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import psycopg
from psycopg.errors import IdleInTransactionSessionTimeout, ReadOnlySqlTransaction
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import InvalidatePoolError, OperationalError, SQLAlchemyError, TimeoutError
from sqlalchemy.pool import ConnectionPoolEntry

from mustit_pipeline import embedded
from mustit_pipeline.environment_failure import EnvironmentFailure
from mustit_pipeline.foundation import schema
from mustit_pipeline.foundation.binary_lists import FlatListDumper
from mustit_pipeline.settings import Settings

T = TypeVar("T")

LONGEST_IDLE_TRANSACTION_SECONDS = 60
# A minute in all: a host that lost power or network closes no connection, and PostgreSQL would keep its locks for two
# hours.
SILENT_HOSTS = {
    "tcp_keepalives_idle": "30s",
    "tcp_keepalives_interval": "10s",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "60s",
}
# A connection that is used again within that time is asked for nothing first.
TRUSTED_SECONDS = 10.0
CAME_BACK = "mustit.came_back"
# For a refused connection libpq keeps no SQLSTATE (28…, 3D000, 42501), only the server's text. A refusal in another
# language counts as an outage.
_REFUSAL = re.compile(
    r"authentication failed|no password supplied|pg_hba\.conf|not permitted to log in|permission denied"
    r"|(?:role|database) \"[^\n]*\" does not exist"
)

# The last two have codes of internal errors: our transaction was idle for too long, or the server became a standby.
_OUTAGES = (OperationalError, psycopg.OperationalError, IdleInTransactionSessionTimeout, ReadOnlySqlTransaction)


@dataclass(frozen=True, slots=True)
class Addresses:
    """The addresses of the servers; `redis_url` is None where PostgreSQL alone counts requests."""

    database_url: URL
    dagster_database_url: URL
    redis_url: str | None


class DatabaseUnreachable(EnvironmentFailure):
    """PostgreSQL does not answer; the message names the address, without its password."""

    code = "EXTERNAL_DATABASE_UNREACHABLE"
    topic = "데이터베이스에 연결할 수 없습니다"


class DatabaseRefused(DatabaseUnreachable):
    """PostgreSQL answers and refuses the login: a retry with the same address does not help."""

    code = "EXTERNAL_DATABASE_REFUSED"
    topic = "데이터베이스가 접속을 거부했습니다"


def is_outage(error: Exception) -> bool:
    """Whether PostgreSQL went away, closed the connection or is failing over: the same work may succeed later."""
    # COPY uses the driver directly, so SQLAlchemy does not wrap its errors.
    return isinstance(error, _OUTAGES) or isinstance(getattr(error, "orig", None), _OUTAGES)


def is_away(error: SQLAlchemyError) -> bool:
    """Whether PostgreSQL does not answer, or no connection became free in time: later it may."""
    return is_outage(error) or isinstance(error, TimeoutError)


def addresses(settings: Settings) -> Addresses:
    """The addresses in force; starts the embedded servers where none is configured."""
    if settings.embedded:
        ours = settings.embedded_redis and embedded.has_redis()
        servers = embedded.attach(settings.home, redis=ours)
        business, dagster = make_url(servers.database_url), make_url(servers.dagster_database_url)
        redis_url = servers.redis_url if ours else settings.redis_url
    else:
        business = make_url(settings.database_url or "").set(drivername="postgresql+psycopg")
        # dagster-postgres listens with psycopg2; SQLAlchemy alone would take psycopg 3 and fail on NOTIFY.
        dagster = make_url(settings.dagster_database_url or "").set(drivername="postgresql+psycopg2")
        redis_url = settings.redis_url
    return Addresses(business, dagster, None if redis_url == "off" else redis_url)


class Database:
    """One engine; every use case opens its transactions through it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    @contextmanager
    def transaction(self) -> Generator[Connection]:
        """A transaction that commits at the end and rolls back on any error. Nothing external belongs inside."""
        with self.engine.begin() as connection:
            yield connection

    async def transact(self, work: Callable[[Connection], T]) -> T:
        """Work in a transaction of its own, while the event loop goes on."""

        def run() -> T:
            with self.transaction() as connection:
                return work(connection)

        return await asyncio.to_thread(run)

    @contextmanager
    def reading(self) -> Generator[Connection]:
        """One consistent snapshot, never written to."""
        with self.engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
            yield connection

    @contextmanager
    def asking(self) -> Generator[Connection]:
        """For one statement that reads: it needs no transaction, which would be two more round trips."""
        with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            yield connection

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()


def make_engine(
    url: URL,
    *,
    connections: int = 10,
    max_connections: int = 50,
    statement_seconds: float | None = None,
    connect_seconds: int = 10,
) -> Engine:
    """An engine for one process: its connections, UTC, a clear name in pg_stat_activity, and a limit per statement."""
    options = {
        "timezone": "UTC",
        # A process that is frozen inside a transaction must not keep its locks.
        "idle_in_transaction_session_timeout": f"{LONGEST_IDLE_TRANSACTION_SECONDS}s",
        **SILENT_HOSTS,
        # Every statement has its index and reads it in order. With outdated statistics the planner would choose a
        # sequential scan, or a bitmap scan that reads all index entries of a crawl before the first row. For a small
        # table, where such a scan is right, the index costs hardly more.
        "enable_seqscan": "off",
        "enable_bitmapscan": "off",
        # JIT pays for queries of seconds; a wrong estimate would use it for queries of milliseconds.
        "jit": "off",
        **({} if statement_seconds is None else {"statement_timeout": f"{1000 * statement_seconds:.0f}ms"}),
    }
    engine = create_engine(
        url,
        pool_size=connections,
        max_overflow=max_connections - connections,
        # The same few connections while there is little to do: theirs are the statements that are planned already.
        pool_use_lifo=True,
        pool_timeout=30 if statement_seconds is None else statement_seconds,
        connect_args={
            "application_name": "mustit",
            "options": " ".join(f"-c {name}={value}" for name, value in options.items()),
            "connect_timeout": connect_seconds,
            # The hot statements are few and often repeated: planned at the second use, not at the sixth.
            "prepare_threshold": 1,
            # The same on our side: a client would also wait two hours for a server that vanished.
            "keepalives_idle": 30,
            "keepalives_interval": 10,
            "keepalives_count": 3,
            "tcp_user_timeout": 60_000,
        },
    )
    event.listen(engine, "connect", _send_lists_as_binary)
    _look_at_idle_connections(engine)
    return engine


def _look_at_idle_connections(engine: Engine) -> None:
    """Replace connections that PostgreSQL has closed, without a round trip before each transaction.

    Its last words, or the end of the connection, can be read at once. Only one that was idle for so long that a host
    may have vanished without a word is asked whether it is still there.
    """

    def came_back(connection: Any, record: ConnectionPoolEntry) -> None:
        record.info[CAME_BACK] = time.monotonic()

    def is_taken(connection: Any, record: ConnectionPoolEntry, _: object) -> None:
        since = record.info.get(CAME_BACK)
        if since is None or (time.monotonic() - since < TRUSTED_SECONDS and _is_silent(connection)):
            return
        try:
            engine.dialect.do_ping(connection)
        except psycopg.Error:
            # All of the pool are looked at, and this checkout goes on with a new one.
            raise InvalidatePoolError from None

    event.listen(engine, "checkin", came_back)
    event.listen(engine, "checkout", is_taken)


def _is_silent(connection: Any) -> bool:
    if connection.closed:
        return False
    waiting = select.poll()
    waiting.register(connection.fileno(), select.POLLIN)
    return not waiting.poll(0)


def _send_lists_as_binary(connection: Any, record: object) -> None:
    """Set-based statements carry long arrays: as text psycopg escapes them 250 times slower."""
    connection.adapters.register_dumper(list, FlatListDumper)


def database_time(connection: Connection) -> datetime:
    """The present time by PostgreSQL's clock, which all hosts share; not the start of the transaction."""
    return connection.execute(text("SELECT clock_timestamp()")).scalar_one()


def is_committed(connection: Connection, transaction: str) -> bool:
    """Whether a recent transaction was committed, even if its client never got the answer."""
    query = text("SELECT pg_xact_status(CAST(CAST(:id AS text) AS xid8))")
    return connection.execute(query, {"id": transaction}).scalar_one() == "committed"


def open_database(settings: Settings, *, check_schema: bool = True) -> Database:
    """Connect, and refuse a schema of another version."""
    url = addresses(settings).database_url
    connections, most = settings.database_connections, settings.database_max_connections
    database = Database(make_engine(url, connections=connections, max_connections=most))
    try:
        with database.reading() as connection:
            if check_schema:
                schema.require_current(connection)
    except OperationalError as error:
        database.close()
        reason = str(error.orig).strip().splitlines()[-1]
        refused = _REFUSAL.search(str(error.orig))
        kind, does = (DatabaseRefused, "refuses us") if refused else (DatabaseUnreachable, "does not answer")
        raise kind(
            f"PostgreSQL {does} at {url.render_as_string(hide_password=True)}: {reason}. "
            "Check MUSTIT_DATABASE_URL, or unset it to use the embedded server",
            korean=f"{kind.topic}: {url.render_as_string(hide_password=True)}의 PostgreSQL에서 온 오류: {reason}. "
            "MUSTIT_DATABASE_URL을 확인하거나, 내장 서버를 쓰려면 해제하세요",
        ) from None
    except BaseException:
        database.close()
        raise
    return database
