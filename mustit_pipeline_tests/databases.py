"""Databases that are as new for every test: making one costs a tenth of a second, taking away what is in it less.

Each is cleaned over a connection that stays open meanwhile: a new one would read the catalog again, which takes longer
than the cleaning.
"""

import time
from typing import Any

import psycopg
from psycopg import sql
from sqlalchemy import URL

# What a test leaves behind in files that are never made smaller, or in what the planner believes.
LARGEST_GROWTH, MOST_ROWS = 4_000_000, 1_000
GONE_SECONDS = 0.1

_TABLES = """
    SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')
    ORDER BY relname
"""
# Whatever changes a table, an index, a constraint, a trigger or a function writes another row into the catalog; to have
# each of them described would take longer than most tests.
_SCHEMA = """
    SELECT string_agg(part, ' ' ORDER BY part) FROM (
        SELECT format('tables %s %s', count(*), sum(xmin::text::bigint)) AS part
        FROM pg_class WHERE relnamespace = 'public'::regnamespace
        UNION ALL
        SELECT format('columns %s %s', count(*), sum(a.xmin::text::bigint))
        FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid WHERE c.relnamespace = 'public'::regnamespace
        UNION ALL
        SELECT format('defaults %s %s', count(*), sum(xmin::text::bigint)) FROM pg_attrdef
        UNION ALL
        SELECT format('constraints %s %s', count(*), sum(xmin::text::bigint))
        FROM pg_constraint WHERE connamespace = 'public'::regnamespace
        UNION ALL
        SELECT format('triggers %s %s', count(*), sum(xmin::text::bigint)) FROM pg_trigger
        UNION ALL
        SELECT format('functions %s %s', count(*), sum(xmin::text::bigint))
        FROM pg_proc WHERE pronamespace = 'public'::regnamespace
        UNION ALL
        SELECT format('settings %s', array_agg(setconfig::text)) FROM pg_db_role_setting s
        JOIN pg_database b ON b.oid = s.setdatabase WHERE b.datname = current_database()
    ) parts
"""
_BELIEVED = "SELECT coalesce(max(reltuples), 0) FROM pg_class WHERE relnamespace = 'public'::regnamespace"
_SIZE = "SELECT pg_database_size(current_database())"
_OTHERS = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""
_SEQUENCES = """
    SELECT setval(format('%I.%I', schemaname, sequencename)::regclass, start_value, false)
    FROM pg_sequences WHERE schemaname = 'public' AND last_value IS NOT NULL
"""


class TestDatabases:
    """Copies of a template, each used by one test at a time."""

    __test__ = False

    def __init__(self, server: URL, template: str) -> None:
        self._server = server
        self._template = template
        self._free: list[str] = []
        self._cleaners: dict[str, psycopg.Connection[Any]] = {}
        self._made = 0
        with self._connect(template) as connection:
            self._tables = [name for (name,) in connection.execute(_TABLES).fetchall()]
            self._schema = _first(connection, _SCHEMA)
            self._size = int(_first(connection, _SIZE))
            self._seeds = {name: self._content(connection, name) for name in self._tables}
        # Those that hold nothing in the template are asked all at once whether they do now.
        self._filled = sql.SQL(" UNION ALL ").join(
            sql.SQL("SELECT {} WHERE EXISTS (SELECT FROM {})").format(sql.Literal(name), sql.Identifier(name))
            for name, seed in self._seeds.items()
            if not seed
        )

    def take(self, *, untouched: bool = False) -> str:
        """The name of a database that looks as the template does; an untouched one was not used before."""
        if self._free and not untouched:
            return self._free.pop()
        self._made += 1
        name = f"test_{self._made}"
        self._administer("CREATE DATABASE {} TEMPLATE {}", name, self._template)
        return name

    def give_back(self, name: str) -> None:
        """Make it as new; what cannot be, or is still in use, is dropped."""
        if self._cleaned(name):
            self._free.append(name)
        else:
            if name in self._cleaners:
                self._cleaners.pop(name).close()
            self._administer("DROP DATABASE {} WITH (FORCE)", name)

    def _cleaned(self, name: str) -> bool:
        """Whether it is as new; a test may have ended every connection there was."""
        try:
            if name not in self._cleaners:
                self._cleaners[name] = self._connect(name)
            return self._clean(self._cleaners[name])
        except psycopg.OperationalError:
            return False

    def _clean(self, connection: psycopg.Connection[Any]) -> bool:
        if not _alone(connection):
            return False
        tables = [name for (name,) in connection.execute(_TABLES).fetchall()]
        # Months that crawls have made.
        for name in set(tables) - set(self._tables):
            connection.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(name)))
        if (
            _first(connection, _SCHEMA) != self._schema
            or _first(connection, _BELIEVED) > MOST_ROWS
            or _first(connection, _SIZE) > self._size + LARGEST_GROWTH
        ):
            return False
        # Rows come and go in any order; what refers to what holds again at the end.
        connection.execute("SET session_replication_role = replica")
        filled = {name for (name,) in connection.execute(self._filled).fetchall()}
        for name, seed in self._seeds.items():
            if name in filled or (seed and self._content(connection, name) != seed):
                connection.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(name)))
                with connection.cursor().copy(sql.SQL("COPY {} FROM STDIN").format(sql.Identifier(name))) as copy:
                    copy.write(seed)
        connection.execute(_SEQUENCES)
        return True

    def _content(self, connection: psycopg.Connection[Any], table: str) -> bytes:
        """Every row of a table; one that is not seeded is not read to its end."""
        few = sql.SQL("COPY (SELECT * FROM {} LIMIT 1000) TO STDOUT").format(sql.Identifier(table))
        with connection.cursor().copy(few) as copy:
            return b"".join(bytes(chunk) for chunk in copy)

    def _connect(self, name: str) -> psycopg.Connection[Any]:
        return psycopg.connect(
            host=str(self._server.query["host"]), port=5432, user="postgres", dbname=name, autocommit=True
        )

    def _administer(self, command: str, *names: str) -> None:
        with self._connect("postgres") as connection:
            connection.execute(sql.SQL(command).format(*map(sql.Identifier, names)))  # pyright: ignore[reportArgumentType]


def _alone(connection: psycopg.Connection[Any]) -> bool:
    """Whether everybody else has gone; the server notices a moment after they did."""
    end = time.monotonic() + GONE_SECONDS
    while _first(connection, _OTHERS):
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def _first(connection: psycopg.Connection[Any], query: str) -> Any:
    row = connection.execute(query).fetchone()  # pyright: ignore[reportArgumentType, reportCallIssue]
    assert row is not None
    return row[0]
