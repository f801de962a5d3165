"""A database that refuses one kind of write, as a full disk would: its writer crashes at just that point."""

from collections.abc import Generator
from contextlib import contextmanager

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from mustit_pipeline.foundation.database import Database


@contextmanager
def refusing(database: Database, event: str, table: str, condition: str) -> Generator[None]:
    """Within, every such row is refused, and its writer must crash on that; afterwards all is well again."""
    with database.transaction() as connection:
        connection.execute(
            text(
                "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql "
                "AS $$ BEGIN RAISE EXCEPTION 'refused by the test'; END $$"
            )
        )
        connection.execute(
            text(
                f"CREATE TRIGGER refusal BEFORE {event} ON {table} FOR EACH ROW WHEN ({condition}) "
                "EXECUTE FUNCTION refuse()"
            )
        )
    try:
        with pytest.raises((DBAPIError, psycopg.Error), match="refused by the test"):
            yield
    finally:
        with database.transaction() as connection:
            connection.execute(text(f"DROP TRIGGER refusal ON {table}"))
            connection.execute(text("DROP FUNCTION refuse()"))
