"""A search by value: which secrets can be read in files, in rows of databases, and in texts."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from sqlalchemy import Connection, text

from mustit_pipeline.agents.sql import agents
from mustit_pipeline.agents.vault import SessionVault
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.settings import TokenKey

_TABLES = text("""
    SELECT quote_ident(schemaname) || '.' || quote_ident(tablename) FROM pg_tables
    WHERE schemaname NOT IN ('pg_catalog', 'information_schema')
""")


def in_texts(secrets: Mapping[str, str], texts: Mapping[str, str]) -> Iterator[str]:
    """Each secret that stands in a text: its name, and where."""
    for where, said in texts.items():
        for name, secret in secrets.items():
            if secret in said:
                yield f"{name} in {where}"


def in_files(secrets: Mapping[str, str], folder: Path, *, besides: Iterable[Path]) -> Iterator[str]:
    """The same in all files of a folder but those below `besides`."""
    passed_over = list(besides)
    for file in sorted(folder.rglob("*")):
        if file.is_file() and not any(file.is_relative_to(one) for one in passed_over):
            yield from in_texts(secrets, {str(file): file.read_bytes().decode(errors="replace")})


def in_database(secrets: Mapping[str, str], database: Database) -> Iterator[str]:
    """The same in every column of every row."""
    with database.reading() as connection:
        for table in connection.execute(_TABLES).scalars().all():
            yield from _in_table(secrets, connection, table)


def _in_table(secrets: Mapping[str, str], connection: Connection, table: str) -> Iterator[str]:
    for row in connection.execute(text(f"SELECT CAST(t AS text) FROM {table} t")).scalars():
        # A column of bytes is written in hexadecimal digits.
        yield from in_texts(secrets, {f"a row of {table}": row})
        yield from in_texts({name: value.encode().hex() for name, value in secrets.items()}, {f"bytes of {table}": row})


def marketplace_sessions(database: Database, keys: TokenKey) -> dict[str, str]:
    """The tokens and cookies that the marketplace has issued to our agents."""
    vault = SessionVault(keys)
    found: dict[str, str] = {}
    with database.reading() as connection:
        stored = agents.read_sessions(connection)
    for agent_id, sealed in stored.items():
        session = vault.open(agent_id, sealed)
        of_agent = {"token": session.token.value, "nid": session.nid, "mustit_uid": session.mustit_uid}
        found |= {f"{name} of agent {agent_id}": value for name, value in of_agent.items()}
    return found
