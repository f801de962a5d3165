"""The log lines of old runs in Dagster's database, which Dagster never removes.

Dagster's own way, deleting a run, also deletes the run's materializations. So only log lines are deleted here; events
of assets, of checks and of a run's status are kept, and so is their run.
"""

from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime

from sqlalchemy import Connection, text

from mustit_pipeline.foundation.database import Database, addresses, make_engine
from mustit_pipeline.settings import Settings

_ENDED = "r.status IN ('SUCCESS', 'FAILURE', 'CANCELED') AND r.update_timestamp < :before"
# Events of asset checks have no asset_key.
_OF_AN_ASSET = "(e.asset_key IS NOT NULL OR e.dagster_event_type LIKE 'ASSET_%')"
_ONLY_A_LINE = """
    e.asset_key IS NULL
    AND coalesce(e.dagster_event_type, '') !~ '^(ASSET_|PIPELINE_|FRESHNESS_)'
    AND coalesce(e.dagster_event_type, '') <> 'STEP_FAILURE'
"""

_WITH_LINES = text(f"""
    SELECT r.id, r.run_id FROM runs r
    WHERE {_ENDED} AND r.id > :after
      AND EXISTS (SELECT FROM event_logs e WHERE e.run_id = r.run_id AND {_ONLY_A_LINE})
    ORDER BY r.id LIMIT :batch
""")

_COUNT_LINES = text(f"""
    SELECT count(*) FROM runs r JOIN event_logs e ON e.run_id = r.run_id WHERE {_ENDED} AND {_ONLY_A_LINE}
""")

_DELETE_LINES = text(f"""
    DELETE FROM event_logs e WHERE e.run_id = ANY(CAST(:run_ids AS text[])) AND {_ONLY_A_LINE}
""")

_WITHOUT_ASSETS = text(f"""
    SELECT r.run_id FROM runs r
    WHERE {_ENDED} AND NOT EXISTS (SELECT FROM event_logs e WHERE e.run_id = r.run_id AND {_OF_AN_ASSET})
    ORDER BY r.id LIMIT :most
""")


@contextmanager
def dagster_database(settings: Settings) -> Generator[Database]:
    """Dagster's database, with our driver."""
    url = addresses(settings).dagster_database_url.set(drivername="postgresql+psycopg")
    database = Database(make_engine(url, connections=1, max_connections=2))
    try:
        yield database
    finally:
        database.close()


def is_there(connection: Connection) -> bool:
    """Whether Dagster stores its runs in this database; a file-based instance does not."""
    return bool(
        connection.execute(
            text("SELECT to_regclass('event_logs') IS NOT NULL AND to_regclass('runs') IS NOT NULL")
        ).scalar_one()
    )


def runs_without_assets(connection: Connection, before: datetime, most: int) -> list[str]:
    """Runs that ended before then and have no events of assets or checks, oldest first."""
    return list(connection.execute(_WITHOUT_ASSETS, {"before": _naive(before), "most": most}).scalars())


def count_lines(connection: Connection, before: datetime) -> int:
    """The number of log lines of runs that ended before then."""
    return connection.execute(_COUNT_LINES, {"before": _naive(before)}).scalar_one()


def runs_with_lines(connection: Connection, before: datetime, *, after: int, batch: int) -> list[tuple[int, str]]:
    """The next runs with lines to delete, as (row, run id), after a given row."""
    values = {"before": _naive(before), "after": after, "batch": batch}
    return [(row.id, row.run_id) for row in connection.execute(_WITH_LINES, values)]


def delete_lines(connection: Connection, run_ids: list[str]) -> int:
    """Delete the lines of these runs."""
    return connection.execute(_DELETE_LINES, {"run_ids": run_ids}).rowcount


def _naive(moment: datetime) -> datetime:
    """Dagster stores times in UTC without a zone."""
    return moment.astimezone(UTC).replace(tzinfo=None)
