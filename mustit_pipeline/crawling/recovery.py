"""Recovery of tasks whose worker died, or whose message is lost."""

import math
from datetime import datetime
from uuid import UUID

from mustit_pipeline.crawling.sql import leases, messages
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


def recover_tasks(database: Database, settings: Settings, now: datetime, *, execution_id: UUID | None = None) -> int:
    """Release tasks of dead workers, and let those be carried that their transport has lost or never had."""
    released = release_expired(database, settings, now, execution_id=execution_id)
    return released + _carry_again(database, settings)


def visibility_seconds(settings: Settings) -> int:
    """How long a message stays with a silent worker: a moment longer than its lease, which is free by then."""
    return math.ceil(settings.lease_seconds + 0.5)


def _carry_again(database: Database, settings: Settings) -> int:
    moved = 0
    while True:
        with database.transaction() as connection:
            if settings.task_transport == "sqs":
                # No worker has received or kept its message for so long: it is lost.
                some = messages.withdraw_lost(connection, seconds=3.0 * visibility_seconds(settings), limit=BATCH)
            else:
                some = messages.adopt(connection, limit=BATCH)
        moved += some
        if some < BATCH:
            return moved
