"""What a sweep of a seller's listing saw for the first time, and what it did not see any more."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, text


@dataclass(frozen=True, slots=True)
class Sightings:
    """Products that the sweep was the first to show, and live ones that it does not show."""

    new: int
    absent: int


_SIGHTINGS = text("""
    SELECT count(*) FILTER (WHERE created_at >= :since AND last_seen_execution_id = :execution_id) AS new,
           count(*) FILTER (WHERE created_at < :since AND deleted_at IS NULL
                              AND last_seen_execution_id IS DISTINCT FROM :execution_id) AS absent
    FROM products WHERE seller_id = :seller_id
""")


def sightings(connection: Connection, seller_id: str, execution_id: UUID, since: datetime) -> Sightings:
    """What an execution that began then has seen so far; who is absent is known once its sweep is complete."""
    values = {"seller_id": seller_id, "execution_id": execution_id, "since": since}
    return Sightings(*connection.execute(_SIGHTINGS, values).one())
