"""Fields of the marketplace's bodies that are not as they were, as a batch of results shows them."""

from collections.abc import Collection

from sqlalchemy import Connection

from mustit_pipeline.catalog.sql import drift
from mustit_pipeline.catalog.sql.drift import Sighting
from mustit_pipeline.crawling.sql import executions


def record_drift(connection: Connection, sightings: Collection[Sighting]) -> None:
    """Record deviations, and warn their executions of those that were not accepted; the executions are locked."""
    executions.warn_of_drift(connection, sightings)
    drift.record(connection, sightings)
