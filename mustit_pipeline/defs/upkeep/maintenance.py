"""Nightly housekeeping: the business database, then Dagster's own history."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime

import dagster as dg
from pydantic import Field

from mustit_pipeline.defs.failures import RETRY_TRANSIENT, readable_failures
from mustit_pipeline.defs.liveness import is_under_way
from mustit_pipeline.defs.resources import BusinessDatabase, SettingsResource
from mustit_pipeline.defs.run_tags import HOUSEKEEPING
from mustit_pipeline.defs.upkeep.run_logs import PrunedRuns, prune_runs
from mustit_pipeline.defs.upkeep.tick_logs import prune_tick_logs
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.monitoring.metrics import SEOUL
from mustit_pipeline.settings import Settings
from mustit_pipeline.upkeep.maintenance import Maintained, Progress, maintain

SECONDS_BETWEEN_LINES = 10.0


class MaintenanceConfig(dg.Config):
    """How a maintenance behaves."""

    dry_run: bool = Field(False, description="Say what would be done, and do nothing")


def keep_house(
    instance: dg.DagsterInstance,
    database: Database,
    settings: Settings,
    now: datetime,
    *,
    dry_run: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> tuple[Maintained, PrunedRuns]:
    """Everything that a night does; says in words how far it is."""

    def bodies(at: Progress) -> None:
        tell(f"bodies: {at.sellers} of {at.total} sellers, {at.removed} removed")

    def logs(at: PrunedRuns) -> None:
        tell(f"Dagster's history: {at.runs} runs and {at.lines} log lines removed")

    done = maintain(database, settings, now, dry_run=dry_run, tell=bodies)
    pruned = prune_runs(instance, settings, now, dry_run=dry_run, tell=logs)
    return done, replace(pruned, tick_logs=prune_tick_logs(instance, settings, now, dry_run=dry_run))


def metadata_of(done: Maintained, pruned: PrunedRuns) -> Mapping[str, int | str]:
    """What was done, as numbers that plot and names that explain."""
    return {
        "months_added": ", ".join(done.months_added) or "none",
        "months_dropped": ", ".join(done.months_dropped) or "none",
        "months_left": ", ".join(f"{month} ({why})" for month, why in done.months_left.items()) or "none",
        "tasks_moved": done.tasks_moved,
        "bodies_aged": done.bodies_aged,
        "bodies_unchanged": done.bodies_unchanged,
        "bookings": done.bookings,
        "alerts": done.alerts,
        "samples": done.samples,
        "triggers": done.triggers,
        "schedule_changes": done.schedule_changes,
        "slices": done.slices,
        "tallies": done.tallies,
        "logins": done.logins,
        "audit_entries": done.audit_entries,
        "runs": pruned.runs,
        "log_lines": pruned.lines,
        "tick_logs": pruned.tick_logs,
    }


@dg.op(
    description="Make month partitions ahead, remove what is kept no longer, and prune Dagster's own history.",
    retry_policy=RETRY_TRANSIENT,
)
def keep_what_is_needed(
    context: dg.OpExecutionContext,
    config: MaintenanceConfig,
    settings: SettingsResource,
    database: BusinessDatabase,
) -> None:
    spoken = time.monotonic()

    def say(line: str) -> None:
        nonlocal spoken
        if time.monotonic() - spoken >= SECONDS_BETWEEN_LINES:
            spoken = time.monotonic()
            context.log.info(line)

    with readable_failures():
        done, pruned = keep_house(
            context.instance, database.open(), settings.read(), utc_now(), dry_run=config.dry_run, tell=say
        )
    context.add_output_metadata(metadata_of(done, pruned))


@dg.job(
    description="Month partitions ahead; old tasks, repeated and old bodies, and old bookings, alerts, comparisons, "
    "messages and log lines removed.",
    tags=HOUSEKEEPING,
    executor_def=dg.in_process_executor,
)
def maintain_storage() -> None:
    keep_what_is_needed()


# After a pause the daemon makes up for the last missed tick only, and the next one may come while that one's run still
# waits: one maintenance answers both.
@dg.schedule(
    job=maintain_storage,
    cron_schedule="30 3 * * *",
    execution_timezone=SEOUL,
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Months ahead, retention, and Dagster's own history, while Seoul sleeps.",
)
def nightly_maintenance(
    context: dg.ScheduleEvaluationContext, settings: SettingsResource, database: BusinessDatabase
) -> dg.RunRequest | dg.SkipReason:
    if is_under_way(context, database.open(), settings.read(), maintain_storage.name):
        return dg.SkipReason("a maintenance is running already")
    return dg.RunRequest()
