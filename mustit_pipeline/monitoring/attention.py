"""What waits for a person, in numbers."""

from dataclasses import dataclass

from sqlalchemy import Connection

from mustit_pipeline.catalog.sql import drift
from mustit_pipeline.monitoring.sql import alerts, health


@dataclass(frozen=True, slots=True)
class Attention:
    """How many things of each kind wait for a decision."""

    deletions: int
    changes: int
    failed_events: int
    drift: int
    alerts: int

    @property
    def total(self) -> int:
        return self.deletions + self.changes + self.failed_events + self.drift + self.alerts


def look(connection: Connection) -> Attention:
    """What waits now."""
    return Attention(
        deletions=len(health.held_deletions(connection)),
        changes=len(health.held_changes(connection)),
        failed_events=health.failed_events(connection),
        drift=drift.count_open(connection),
        alerts=alerts.open_alerts(connection)[0],
    )
