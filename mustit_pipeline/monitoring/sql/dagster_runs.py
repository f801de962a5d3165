"""Runs by result, from Dagster's own database: plain SQL, so that a reader needs no Dagster."""

from dataclasses import dataclass

from sqlalchemy import Connection, text

# Every state of a run, so that the index on state and time serves.
STATES = (
    "QUEUED",
    "NOT_STARTED",
    "MANAGED",
    "STARTING",
    "STARTED",
    "SUCCESS",
    "FAILURE",
    "CANCELING",
    "CANCELED",
)

_RUNS = text(f"""
    SELECT pipeline_name, status, count(*) AS number FROM runs
    WHERE status IN ({", ".join(f"'{state}'" for state in STATES)})
      AND update_timestamp >= now() AT TIME ZONE 'UTC' - make_interval(hours => :hours)
    GROUP BY pipeline_name, status
""")


@dataclass(frozen=True, slots=True)
class Runs:
    """How many runs of a job are in a state."""

    job: str
    state: str
    number: int


def recent(connection: Connection, hours: int) -> list[Runs]:
    """Runs whose state changed in the last hours, by job and state."""
    return [Runs(row.pipeline_name, row.status, row.number) for row in connection.execute(_RUNS, {"hours": hours})]
