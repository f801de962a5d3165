"""`mustit maintain`: the nightly maintenance, now."""

from typing import Annotated, Any

import typer

from mustit_pipeline.cli.output import Json, err, out, print_json, print_table
from mustit_pipeline.cli.runtime import dagster_instance, runtime
from mustit_pipeline.foundation.clock import utc_now

DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")]
KINDS = {
    "tasksMoved": "tasks that came before their month's partition, now in it",
    "bodiesAged": "overtaken bodies older than MUSTIT_RAW_RETENTION_DAYS",
    "bodiesUnchanged": "bodies that newer ones only repeat",
    "bookings": "bookings of agents that no window reaches any more",
    "alerts": "alerts that were over before MUSTIT_ALERT_RETENTION_DAYS",
    "samples": "compared products older than MUSTIT_TRUTH_RETENTION_DAYS",
    "triggers": "messages of the trigger queue older than MUSTIT_TRIGGER_RETENTION_DAYS",
    "scheduleChanges": "schedule changes that were told or replaced before MUSTIT_SCHEDULE_RETENTION_DAYS",
    "slices": "what slices of crawls came to before MUSTIT_RUN_LOG_RETENTION_DAYS",
    "tallies": "hours of counted fetches, changes and deliveries older than a year",
    "logins": "ended access tokens, login links and failed logins that count no more",
    "auditEntries": "entries of the audit log older than a year",
    "runs": "old Dagster runs that tell of no asset",
    "logLines": "log lines of older Dagster runs, whose materializations stay",
    "tickLogs": "files that ticks of sensors and schedules have written to",
}


def maintain(dry_run: DryRun = False, as_json: Json = False) -> None:
    """Create month partitions ahead and delete what is past its retention, as every night.

    History, change sets and events are never deleted, nor the newest body of each call; a failed body is deleted once a
    newer one of the same call exists.

    Example: `mustit maintain --dry-run`
    """
    with runtime() as ground, dagster_instance(ground.settings) as instance:
        from mustit_pipeline.defs.upkeep.maintenance import keep_house

        with err.status("looking for what can go", spinner="dots") as shown:
            done, pruned = keep_house(
                instance, ground.database, ground.settings, utc_now(), dry_run=dry_run, tell=shown.update
            )
    document: dict[str, Any] = {
        "dryRun": dry_run,
        "monthsAdded": done.months_added,
        "monthsDropped": done.months_dropped,
        "monthsLeft": [{"month": month, "reason": why} for month, why in done.months_left.items()],
        "tasksMoved": done.tasks_moved,
        "bodiesAged": done.bodies_aged,
        "bodiesUnchanged": done.bodies_unchanged,
        "bookings": done.bookings,
        "alerts": done.alerts,
        "samples": done.samples,
        "triggers": done.triggers,
        "scheduleChanges": done.schedule_changes,
        "slices": done.slices,
        "tallies": done.tallies,
        "logins": done.logins,
        "auditEntries": done.audit_entries,
        "runs": pruned.runs,
        "logLines": pruned.lines,
        "tickLogs": pruned.tick_logs,
    }
    if as_json:
        print_json(document)
        return
    rows = [
        *((", ".join(document[key]), what) for key, what in _MONTHS.items() if document[key]),
        *((month, f"month left as it is: {why}") for month, why in done.months_left.items()),
        *((document[key], what) for key, what in KINDS.items() if document[key]),
    ]
    if rows:
        print_table("Would be done" if dry_run else "Done", ["", "what"], rows)
    else:
        out.print("nothing was due")


_MONTHS = {"monthsAdded": "month partitions of tasks made", "monthsDropped": "months of old tasks removed"}
