"""What sensors and schedules wrote while they looked: a file for each tick, which Dagster leaves behind."""

from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

import dagster as dg

from mustit_pipeline.settings import Settings

# Dagster's own name for what a code location defines, and its folder for the ticks of that.
REPOSITORY = "__repository__"


def prune_tick_logs(instance: dg.DagsterInstance, settings: Settings, now: datetime, *, dry_run: bool = False) -> int:
    """Remove what is older than the setting says, and say how much; on S3 a lifecycle rule of the bucket does it."""
    local_path = getattr(instance.compute_log_manager, "get_captured_local_path", None)
    if local_path is None:
        return 0
    before = (now - timedelta(days=settings.run_log_retention_days)).timestamp()
    removed = 0
    for file in Path(local_path([REPOSITORY, "any"], "err")).parent.glob("*/*"):
        # Another process may be removing it, too.
        with suppress(FileNotFoundError):
            if file.stat().st_mtime < before:
                if not dry_run:
                    file.unlink()
                removed += 1
    return removed
