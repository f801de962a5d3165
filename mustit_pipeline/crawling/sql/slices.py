"""Slices of crawls: what each came to, one row for each run that worked on an execution."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, text

from mustit_pipeline.domain.execution import OPEN_STATES
from mustit_pipeline.domain.states import ExecutionStatus, SliceOutcome
from mustit_pipeline.foundation.aging import Aged
from mustit_pipeline.foundation.tables import listed

AGED = Aged("crawling_slices", ("ended_at",))


@dataclass(frozen=True, slots=True)
class EndedSlice:
    """A slice that has ended, by the run that worked on it."""

    run_id: str
    execution_id: UUID
    outcome: SliceOutcome
    ended_at: datetime
    # The name of the error that ended it, where one did and was seen.
    error: str | None = None


@dataclass(frozen=True, slots=True)
class BegunCrawl:
    """An open execution that has had a slice and could have another, and when anything of it moved last."""

    execution_id: UUID
    seller_id: str
    moved_at: datetime


_BEGUN = text(f"""
    SELECT execution_id, seller_id, updated_at AS moved_at FROM crawling_schedule_executions
    WHERE status IN ({listed(OPEN_STATES - {ExecutionStatus.PAUSED})}) AND slice_no > 0
    ORDER BY created_at
""")

_RECORD = text("""
    INSERT INTO crawling_slices (run_id, execution_id, outcome, ended_at, error)
    SELECT * FROM unnest(CAST(:runs AS text[]), CAST(:executions AS uuid[]), CAST(:outcomes AS text[]),
                         CAST(:times AS timestamptz[]), CAST(:errors AS text[]))
    ON CONFLICT (run_id) DO NOTHING
""")

_NEWEST = text("""
    SELECT s.run_id, s.execution_id, s.outcome, s.ended_at, s.error
    FROM unnest(CAST(:executions AS uuid[])) AS wanted(execution_id)
    CROSS JOIN LATERAL (
        SELECT * FROM crawling_slices
        WHERE execution_id = wanted.execution_id ORDER BY ended_at DESC LIMIT :most
    ) AS s
    ORDER BY s.ended_at DESC
""")

_RECORDED = text("""
    SELECT s.run_id FROM unnest(CAST(:runs AS text[])) AS wanted(run_id) JOIN crawling_slices s USING (run_id)
""")

_HALTED = text(f"""
    SELECT s.run_id FROM unnest(CAST(:runs AS text[])) AS wanted(run_id) JOIN crawling_slices s USING (run_id)
    WHERE s.outcome = '{SliceOutcome.HALTED.value}'
""")


def begun(connection: Connection) -> list[BegunCrawl]:
    """Executions that have had a slice and could have another."""
    return [BegunCrawl(*row) for row in connection.execute(_BEGUN)]


def record(connection: Connection, slices: Sequence[EndedSlice]) -> None:
    """Store what they came to; what a run has said of itself stays."""
    if slices:
        values = {
            "runs": [one.run_id for one in slices],
            "executions": [one.execution_id for one in slices],
            "outcomes": [one.outcome.value for one in slices],
            "times": [one.ended_at for one in slices],
            "errors": [one.error for one in slices],
        }
        connection.execute(_RECORD, values)


def newest(connection: Connection, execution_ids: Collection[UUID], most: int) -> dict[UUID, list[EndedSlice]]:
    """The newest so many slices of each execution, newest first."""
    found: dict[UUID, list[EndedSlice]] = {execution_id: [] for execution_id in execution_ids}
    for row in connection.execute(_NEWEST, {"executions": list(execution_ids), "most": most}):
        ended = EndedSlice(row.run_id, row.execution_id, SliceOutcome(row.outcome), row.ended_at, row.error)
        found[row.execution_id].append(ended)
    return found


def recorded(connection: Connection, run_ids: Collection[str]) -> set[str]:
    """Those of which it is known what they came to."""
    return set(connection.execute(_RECORDED, {"runs": list(run_ids)}).scalars())


def halted(connection: Connection, run_ids: Collection[str]) -> set[str]:
    """Those that ended because their crawl was paused or cancelled."""
    return set(connection.execute(_HALTED, {"runs": list(run_ids)}).scalars())
