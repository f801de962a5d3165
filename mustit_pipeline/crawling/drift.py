"""Recording of the drift that a batch of results shows."""

from collections.abc import Collection

from sqlalchemy import Connection

from mustit_pipeline.catalog.sql import drift
from mustit_pipeline.catalog.sql.drift import Sighting
from mustit_pipeline.crawling.sql import executions


def record_drift(connection: Connection, sightings: Collection[Sighting]) -> None:
    """Record deviations, and note unaccepted ones in their executions; the caller has locked the executions."""
    executions.warn_of_drift(connection, sightings)
    drift.record(connection, sightings)
