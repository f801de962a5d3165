"""Recovery of tasks whose worker died."""

from datetime import datetime
from uuid import UUID

from mustit_pipeline.crawling.sql import leases
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.settings import Settings

BATCH = 500


def release_expired(database: Database, settings: Settings, now: datetime, *, execution_id: UUID | None = None) -> int:
    """Release tasks whose lease has expired to the queue; a task released too often fails instead."""
    released = 0
    while True:
        with database.transaction() as connection:
            expired = leases.take_expired(
                connection,
                limit=BATCH,
                max_retries=settings.task_max_retries,
                max_releases=settings.task_max_releases,
                execution_id=execution_id,
            )
            for leased in expired:
                leased.task.release(now)
            leases.save(connection, [(leased, 0.0) for leased in expired])
        released += len(expired)
        if len(expired) < BATCH:
            return released
