"""Dagster's own history, kept small: old runs without asset or check go, of the others only the log lines."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

import dagster as dg

from mustit_pipeline.foundation.aging import tidy
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.settings import Settings
from mustit_pipeline.upkeep.sql import run_logs

RUNS_AT_ONCE = 200
# A run is deleted through Dagster, one by one; the rest follows the night after.
MOST_RUNS = 10_000
VACUUM_FROM = 10_000


@dataclass(frozen=True, slots=True)
class PrunedRuns:
    """Runs that were deleted, log lines that were removed from runs that stay, and files of ticks."""

    runs: int = 0
    lines: int = 0
    tick_logs: int = 0


def prune_runs(
    instance: dg.DagsterInstance,
    settings: Settings,
    now: datetime,
    *,
    dry_run: bool = False,
    tell: Callable[[PrunedRuns], None] = lambda _: None,
) -> PrunedRuns:
    """Remove what is older than the setting says; nothing of a run that waits or works is touched."""
    before = now - timedelta(days=settings.run_log_retention_days)
    with run_logs.dagster_database(settings) as database:
        with database.reading() as connection:
            if not run_logs.is_there(connection):
                return PrunedRuns()
            bare = run_logs.runs_without_assets(connection, before, MOST_RUNS)
            if dry_run:
                return PrunedRuns(len(bare), run_logs.count_lines(connection, before))
        for done, run_id in enumerate(bare, start=1):
            _delete_captured(instance, run_id)
            instance.delete_run(run_id)
            tell(PrunedRuns(done))
        lines = _prune_lines(instance, database, before, lambda n: tell(PrunedRuns(len(bare), n)))
        if lines + len(bare) >= VACUUM_FROM:
            tidy(database, "event_logs")
    return PrunedRuns(len(bare), lines)


def _prune_lines(
    instance: dg.DagsterInstance, database: Database, before: datetime, tell: Callable[[int], None]
) -> int:
    lines, after = 0, 0
    while True:
        with database.reading() as connection:
            found = run_logs.runs_with_lines(connection, before, after=after, batch=RUNS_AT_ONCE)
        if not found:
            return lines
        run_ids = [run_id for _, run_id in found]
        for run_id in run_ids:
            _delete_captured(instance, run_id)
        with database.transaction() as connection:
            lines += run_logs.delete_lines(connection, run_ids)
        after = found[-1][0]
        tell(lines)


def _delete_captured(instance: dg.DagsterInstance, run_id: str) -> None:
    """What its steps wrote to stdout and stderr is kept apart from the event log."""
    instance.compute_log_manager.delete_logs(prefix=[run_id])
