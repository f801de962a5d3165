"""`mustit aws`: queues and rules in AWS, made, compared and mended."""

import json
from typing import Annotated

import typer

from mustit_pipeline.aws.policy import setup_policy, work_policy
from mustit_pipeline.aws.rule_comparison import different_rules, mend_rules
from mustit_pipeline.aws.setup import DestinationSetup, QueueSetup, make_destination, make_queues
from mustit_pipeline.cli.list_options import make_table
from mustit_pipeline.cli.output import Json, err, out, print_json
from mustit_pipeline.cli.runtime import runtime
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.settings import load_settings

app = typer.Typer(help="Queues and rules in AWS: made, compared and mended.", no_args_is_help=True)


@app.command("setup", epilog="Example: `mustit aws setup --dry-run`")
def set_up(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be made or changed.")] = False,
    as_json: Json = False,
) -> None:
    """Make the queues, the dead-letter queue and the API destination that the settings name; print the IAM policies.

    What is as it should be is left alone. `work` is for the pipeline itself, `setup` for this command.
    """
    settings = load_settings()
    queues = make_queues(settings, dry_run=dry_run)
    destination = make_destination(settings, dry_run=dry_run)
    policies = {"work": work_policy(settings), "setup": setup_policy(settings)}
    if as_json:
        print_json(
            {
                "queues": [{"name": one.name, "created": one.created, "changed": dict(one.changed)} for one in queues],
                "apiDestination": destination
                and {"endpoint": destination.endpoint, "created": destination.created, "arn": destination.arn},
                "policies": policies,
            }
        )
        return
    for queue in queues:
        err.print(_queue_line(queue, dry_run=dry_run), highlight=False)
    if destination is not None:
        err.print(_destination_line(destination, dry_run=dry_run), highlight=False)
    if not queues and destination is None:
        err.print(
            "The settings name nothing to be made in AWS: see MUSTIT_TASK_TRANSPORT, MUSTIT_TRIGGER_QUEUE_URL and "
            "MUSTIT_TRIGGER_API_URL.",
            highlight=False,
        )
    typer.echo(json.dumps(policies, indent=2))


@app.command("rules", epilog="Example: `mustit aws rules --mend`")
def rules(
    mend: Annotated[bool, typer.Option("--mend", help="Make them as the schedules are.")] = False,
    as_json: Json = False,
) -> None:
    """List EventBridge rules that differ from the schedules in the database; exit 1 if any does and is not mended."""
    with runtime() as ground:
        found = different_rules(ground.database, ground.settings)
        relayed = None
        if mend and found:
            relayed = mend_rules(ground.database, ground.settings, utc_now, found)
            found = different_rules(ground.database, ground.settings)
    if as_json:
        print_json(
            {
                "different": [
                    {
                        "rule": one.name,
                        "difference": one.difference.name,
                        "sellerId": one.seller_id and one.seller_id.value,
                    }
                    for one in found
                ],
                "applied": 0 if relayed is None else relayed.applied,
            }
        )
    else:
        if relayed is not None:
            out.print(str(relayed), highlight=False)
        if found:
            rows = [(one.name, one.difference.value, one.seller_id) for one in found]
            out.print(make_table(["rule"], ["difference", "seller"], rows))
        else:
            out.print("Every rule is as its schedule.", highlight=False)
    if found:
        raise typer.Exit(1)


def _queue_line(queue: QueueSetup, *, dry_run: bool) -> str:
    if not queue.created and not queue.changed:
        return f"{queue.name}: as it should be"
    verb = "would be" if dry_run else "is"
    return f"{queue.name}: {verb} {'made' if queue.created else 'changed'} ({', '.join(sorted(queue.changed))})"


def _destination_line(destination: DestinationSetup, *, dry_run: bool) -> str:
    what = "would be" if dry_run else "is"
    arn = "" if destination.arn is None else f"; set MUSTIT_TRIGGER_TARGET_ARN to {destination.arn}"
    return f"{destination.endpoint}: the API destination {what} {'made' if destination.created else 'updated'}{arn}"
