"""`mustit relay`: send waiting events, through the same Dagster job that the daemon runs."""

import signal
from typing import TYPE_CHECKING, Any

import typer

from mustit_pipeline.cli.output import Json, err, print_outcome
from mustit_pipeline.cli.progress import Step, watched
from mustit_pipeline.cli.runtime import RunFailed, Runtime, dagster_instance, failure_reason, run_quietly, runtime
from mustit_pipeline.cli.stopping import Stopped, raise_if_stopped
from mustit_pipeline.outbox.sql import outbox

if TYPE_CHECKING:
    import dagster as dg

PATIENCE_SECONDS = 60.0
STOPPED = "Stopped; what was not sent waits for the next relay"


class RelayStopped(Stopped):
    """The relay was asked to stop; with the numbers until then."""

    def __init__(self, number: signal.Signals, report: dict[str, Any]) -> None:
        super().__init__(number)
        self.report = report


def relay(as_json: Json = False) -> None:
    """Send waiting product events until nothing is due; back-offs of up to a minute are waited out.

    Exit 1 if an event became FAILED.

    Example: `mustit relay --json`
    """
    with runtime() as ground, dagster_instance(ground.settings, runs_here=True) as instance:
        try:
            report = run_relay(ground, instance)
        except RelayStopped as stopped:
            _tell(stopped.report, as_json=as_json)
            err.print(STOPPED, highlight=False)
            raise
    _tell(report, as_json=as_json)
    if report["failed"]:
        err.print("`mustit outbox list --status FAILED` says why.", highlight=False)
    raise typer.Exit(1 if report["failed"] else 0)


def _tell(report: dict[str, Any], *, as_json: bool) -> None:
    print_outcome(
        report,
        f"sent {report['sent']}, superseded {report['superseded']}, failed {report['failed']}, "
        f"waiting {report['waiting']}",
        as_json=as_json,
    )


def run_relay(ground: Runtime, instance: "dg.DagsterInstance", *, quiet: bool = False) -> dict[str, Any]:
    """Run the relay job; returns sent, superseded, failed and waiting, or raises RelayStopped with them."""
    with ground.database.reading() as connection:
        start = outbox.counts(connection)

    def look() -> Step:
        with ground.database.reading() as connection:
            now = outbox.counts(connection)
        unsent = start.waiting + start.sending
        return Step(max(0, unsent - now.waiting - now.sending), unsent, "events")

    config = {"ops": {"relay_waiting_events": {"config": {"patience_seconds": PATIENCE_SECONDS}}}}
    with watched("relaying", look, quiet=quiet):
        result = run_quietly(instance, "relay_product_outbox", config)
    if not any(event.is_successful_output and event.step_key == "relay_waiting_events" for event in result.all_events):
        raise_if_stopped(result)
        raise RunFailed(failure_reason(result))
    report = result.output_for_node("relay_waiting_events")
    try:
        raise_if_stopped(result)
    except Stopped as stop:
        stop.is_taken = True
        raise RelayStopped(stop.number, report) from None
    return report
