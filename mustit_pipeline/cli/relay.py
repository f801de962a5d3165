"""`mustit relay`: send what waits, through the same Dagster job that the daemon runs."""

from typing import TYPE_CHECKING, Any

import typer

from mustit_pipeline.cli.output import Json, err, out, print_json
from mustit_pipeline.cli.progress import Step, watched
from mustit_pipeline.cli.runtime import RunFailed, Runtime, dagster_instance, failure_reason, run_quietly, runtime
from mustit_pipeline.store import outbox

if TYPE_CHECKING:
    import dagster as dg

PATIENCE_SECONDS = 60.0


def relay(as_json: Json = False) -> None:
    """Send waiting product events until nothing is due; back-offs of up to a minute are waited out.

    Example: `mustit relay --json`
    """
    with runtime() as ground, dagster_instance(ground.settings, runs_here=True) as instance:
        report = run_relay(ground, instance)
    if as_json:
        print_json(report)
    else:
        out.print(
            f"sent {report['sent']}, superseded {report['superseded']}, failed {report['failed']}, "
            f"waiting {report['waiting']}",
            highlight=False,
        )
    if report["failed"]:
        err.print("`mustit outbox list --status FAILED` says why.", highlight=False)
    raise typer.Exit(1 if report["failed"] else 0)


def run_relay(ground: Runtime, instance: "dg.DagsterInstance", *, quiet: bool = False) -> dict[str, Any]:
    """Run the relay job; returns sent, superseded, failed and waiting."""
    with ground.database.reading() as connection:
        start = outbox.counts(connection)

    def look() -> Step:
        with ground.database.reading() as connection:
            now = outbox.counts(connection)
        return Step(now.completed - start.completed, start.waiting + start.sending, "events")

    config = {"ops": {"relay_waiting_events": {"config": {"patience_seconds": PATIENCE_SECONDS}}}}
    with watched("relaying", look, quiet=quiet):
        result = run_quietly(instance, "relay_product_outbox", config)
    if not any(event.is_step_success and event.step_key == "relay_waiting_events" for event in result.all_events):
        raise RunFailed(failure_reason(result))
    return result.output_for_node("relay_waiting_events")
