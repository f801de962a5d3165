"""Rows that are deleted by age alone."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text

from mustit_pipeline.foundation.database import Database


@dataclass(frozen=True, slots=True)
class Aged:
    """A table whose rows are deleted by age alone, and the times that all have to be past.

    `stated` is the condition of an index that serves only statements that state it too.
    """

    table: str
    times: tuple[str, ...]
    stated: str = "true"

    @property
    def old(self) -> str:
        return " AND ".join((*(f"{time} < :before" for time in self.times), self.stated))


def count_aged(connection: Connection, aged: Aged, before: datetime) -> int:
    """Count the rows that are old enough."""
    query = text(f"SELECT count(*) FROM {aged.table} WHERE {aged.old}")
    return connection.execute(query, {"before": before}).scalar_one()


def delete_aged(database: Database, aged: Aged, before: datetime, batch: int) -> int:
    """Delete those rows, one transaction per batch."""
    # By their place: a row that is written meanwhile has another one and stays, and no plan joins the whole table.
    query = text(f"""
        DELETE FROM {aged.table} WHERE ctid = ANY(ARRAY(
            SELECT ctid FROM {aged.table} WHERE {aged.old} ORDER BY {aged.times[0]} LIMIT :batch))
    """)
    removed = 0
    while True:
        with database.transaction() as connection:
            gone = connection.execute(query, {"before": before, "batch": batch}).rowcount
        removed += gone
        if gone < batch:
            return removed


def tidy(database: Database, *tables: str) -> None:
    """Free the space of deleted rows and renew the planner's statistics; a locked table is skipped."""
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for table in tables:
            connection.exec_driver_sql(f"VACUUM (ANALYZE, SKIP_LOCKED) {table}")
