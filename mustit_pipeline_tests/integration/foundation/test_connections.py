"""How many connections a process opens, how long a silent one is believed in, and what is said where it gets none."""

import socketserver
import struct
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from threading import Thread
from typing import Any

import psycopg
import pytest
from sqlalchemy import Connection, make_url, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as NoConnection
from sqlalchemy.pool import QueuePool

from mustit_pipeline.foundation import database as foundation
from mustit_pipeline.foundation.database import Database, DatabaseRefused, DatabaseUnreachable, is_outage, open_database
from mustit_pipeline_tests.conftest import MakeSettings


def test_a_process_opens_as_many_connections_as_the_settings_allow(
    make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = open_database(make_settings(database_connections=1, database_max_connections=2))
    pool = database.engine.pool
    assert isinstance(pool, QueuePool)
    monkeypatch.setattr(pool, "_timeout", 0.05)
    try:
        with ExitStack() as held:
            for _ in range(2):
                held.enter_context(database.transaction())
            with pytest.raises(NoConnection):
                held.enter_context(database.transaction())
        assert pool.checkedin() == 1
    finally:
        database.close()


def test_postgresql_notices_within_two_minutes_that_a_host_has_vanished(database: Database) -> None:
    """Its locks would otherwise stay for two hours, and a lost run would keep its seller for as long."""
    # In force only over TCP: through a socket SHOW says 0, while what was asked for is still what a RESET goes back to.
    query = text("SELECT name, reset_val::int FROM pg_settings WHERE name LIKE 'tcp%' AND source = 'client'")
    with database.reading() as connection:
        asked = {row.name: row.reset_val for row in connection.execute(query)}

    silent = asked["tcp_keepalives_idle"] + asked["tcp_keepalives_interval"] * asked["tcp_keepalives_count"]
    assert 0 < silent < 120
    assert 0 < asked["tcp_user_timeout"] < 120_000


def _stand_still(connection: Connection) -> None:
    connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = '10ms'"))
    time.sleep(0.5)
    connection.execute(text("SELECT 1"))


def _become_a_copy(connection: Connection) -> None:
    connection.execute(text("SET TRANSACTION READ ONLY"))
    connection.execute(text("DELETE FROM sellers"))


def _lose_the_connection(connection: Connection) -> None:
    connection.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))


def _lose_it_in_a_copy(connection: Connection) -> None:
    driver: Any = connection.connection.driver_connection
    with (
        driver.cursor() as cursor,
        cursor.copy("COPY (SELECT pg_terminate_backend(pg_backend_pid())) TO STDOUT") as copy,
    ):
        list(copy)


@pytest.mark.parametrize("happens", [_stand_still, _become_a_copy, _lose_the_connection, _lose_it_in_a_copy])
def test_what_a_server_does_that_goes_away_or_hands_over_is_an_outage(
    database: Database, happens: Callable[[Connection], None]
) -> None:
    with pytest.raises((DBAPIError, psycopg.Error)) as raised, database.transaction() as connection:
        happens(connection)

    assert is_outage(raised.value)


@pytest.fixture
def pings(database: Database, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Each question whether a connection is still there."""
    asked: list[object] = []
    ping = database.engine.dialect.do_ping

    def counted(connection: Any) -> bool:
        asked.append(connection)
        return ping(connection)

    monkeypatch.setattr(database.engine.dialect, "do_ping", counted)
    return asked


def _backends(database: Database, number: int) -> set[int]:
    """The processes of so many connections that are used at once."""
    with ExitStack() as held:
        connections = [held.enter_context(database.reading()) for _ in range(number)]
        return {one.execute(text("SELECT pg_backend_pid()")).scalar_one() for one in connections}


def test_a_connection_that_is_used_again_at_once_is_not_asked_whether_it_is_there(
    database: Database, pings: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = _backends(database, 1)
    assert [_backends(database, 1) for _ in range(3)] == [first] * 3
    assert pings == []
    monkeypatch.setattr(foundation, "TRUSTED_SECONDS", 0.0)
    assert _backends(database, 1) == first
    assert len(pings) == 1


def test_connections_that_postgresql_has_closed_are_replaced_before_a_transaction_notices(
    database: Database, database_url: str
) -> None:
    before = _backends(database, 3)
    address = make_url(database_url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(address, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(pid, 10000) FROM unnest(%s) pid", [list(before)])
    for _ in range(3):
        with database.transaction() as connection:
            connection.execute(text("SELECT 1"))
    assert not _backends(database, 3) & before


@pytest.mark.parametrize("mistake", ["SELECT 1 / 0", "SELECT * FROM nowhere", "INSERT INTO sellers DEFAULT VALUES"])
def test_a_mistake_of_ours_is_no_outage(database: Database, mistake: str) -> None:
    with pytest.raises(DBAPIError) as raised, database.transaction() as connection:
        connection.execute(text(mistake))

    assert not is_outage(raised.value)
    assert not is_outage(ZeroDivisionError())


@pytest.mark.parametrize(("user", "name"), [("stranger", None), (None, "nowhere")])
def test_a_user_or_a_database_that_the_server_does_not_know_is_refused(
    make_settings: MakeSettings, database_url: str, user: str | None, name: str | None
) -> None:
    url = make_url(database_url).set(username=user, database=name).render_as_string(hide_password=False)

    with pytest.raises(DatabaseRefused, match=r"refuses us.*does not exist"):
        open_database(make_settings(database_url=url))


def test_a_user_without_the_right_to_connect_is_refused(
    make_settings: MakeSettings, database: Database, database_url: str
) -> None:
    url = make_url(database_url)
    with database.engine.begin() as connection:
        connection.exec_driver_sql("CREATE ROLE outsider LOGIN")
        connection.exec_driver_sql(f'REVOKE CONNECT ON DATABASE "{url.database}" FROM PUBLIC')
    try:
        with pytest.raises(DatabaseRefused, match="CONNECT privilege"):
            open_database(make_settings(database_url=str(url.set(username="outsider"))))
    finally:
        with database.engine.begin() as connection:
            connection.exec_driver_sql(f'GRANT CONNECT ON DATABASE "{url.database}" TO PUBLIC')
            connection.exec_driver_sql("DROP ROLE outsider")


@pytest.mark.parametrize(
    ("state", "said", "kind"),
    [
        ("28P01", 'password authentication failed for user "mustit"', DatabaseRefused),
        ("28000", 'no pg_hba.conf entry for host "10.0.0.1", user "mustit", no encryption', DatabaseRefused),
        ("28000", 'role "mustit" is not permitted to log in', DatabaseRefused),
        ("57P03", "the database system is starting up", DatabaseUnreachable),
        ("53300", "sorry, too many clients already", DatabaseUnreachable),
    ],
)
def test_only_what_another_try_may_heal_counts_as_unreachable(
    make_settings: MakeSettings, state: str, said: str, kind: type[DatabaseUnreachable]
) -> None:
    with saying(state, said) as port, pytest.raises(DatabaseUnreachable) as refused:
        open_database(
            make_settings(database_url=f"postgresql://mustit:hunter2@127.0.0.1:{port}/mustit?sslmode=disable")
        )

    assert type(refused.value) is kind
    assert said in str(refused.value)
    assert "hunter2" not in str(refused.value)


@contextmanager
def saying(state: str, said: str) -> Generator[int]:
    """The port of a server that answers every connection with this error, as PostgreSQL words it."""

    class Refusing(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            [length] = struct.unpack("!i", self.rfile.read(4))
            self.rfile.read(length - 4)
            fields = "".join(f"{field}\0" for field in ("SFATAL", "VFATAL", f"C{state}", f"M{said}")).encode() + b"\0"
            self.wfile.write(b"E" + struct.pack("!i", len(fields) + 4) + fields)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Refusing) as server:
        Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        yield server.server_address[1]
        server.shutdown()
