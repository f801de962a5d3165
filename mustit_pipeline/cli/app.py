"""The `mustit` command: its groups, and errors that say what to do."""

import os
import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from mustit_pipeline.cli.output import err, is_korean, message_of, print_error, print_json
from mustit_pipeline.domain.errors import DomainError, ValidationFailed
from mustit_pipeline.environment_failure import EnvironmentFailure

# Module, name in it, and the line in the list of commands. A module is imported only when its command runs: all imports
# together take seconds, and most commands need few.
COMMANDS = {
    "up": ("up", "up", "Run everything until Ctrl-C, with the Dagster UI."),
    "demo": ("demo", "demo", "Show the whole pipeline at work, and prove that nothing was missed."),
    "doctor": ("doctor", "doctor", "Look at everything that the pipeline needs."),
    "crawl": ("crawl", "crawl", "Run one seller's crawl to its end, here and now."),
    "backfill": ("backfill", "backfill", "Fetch many sellers again, or process their stored bodies again."),
    "relay": ("relay", "relay", "Send waiting product events until nothing is due."),
    "reconcile": ("reconcile", "reconcile", "Compare what was delivered with what the product server reports."),
    "recover": ("recover", "recover", "Recover the work of a dead worker, relay or run."),
    "maintain": ("maintain", "maintain", "Month partitions ahead, retention, Dagster's own history."),
    "db": ("database", "app", "The database schema."),
    "seller": ("sellers", "app", "Sellers: which are crawled, and how often."),
    "execution": ("executions", "app", "Crawls: their state, pause, resume and cancel."),
    "product": ("products", "app", "Products: any version of them, and what changed in between."),
    "changes": ("changes", "changes", "What changed on the marketplace, newest first."),
    "raw": ("raw", "app", "Fetched bodies: their state, and failed ones processed again."),
    "deletions": ("deletions", "app", "Deletions held back because they were too many: approve or reject them."),
    "holds": ("change_holds", "app", "Changes held back because too many looked wrong at once: release them."),
    "alerts": ("alerts", "app", "Open problems, their notifications, and a test message."),
    "drift": ("drift", "app", "Fields of the marketplace's bodies that changed: look at them, accept them."),
    "outbox": ("outbox", "app", "Events for the product server: what waits or failed, and failed ones sent again."),
    "triggers": ("triggers", "app", "Messages that asked for crawls and are parked: look at them, dismiss them."),
    "dlq": (
        "dead_letters",
        "app",
        "Messages of tasks that failed after all attempts: look at them, send them again, drop them.",
    ),
    "aws": ("aws", "app", "Queues and rules in AWS: made, compared and mended."),
    "agents": ("agents", "app", "The pool of user agents."),
    "budget": ("budget", "budget", "What the pool's requests buy, and what would keep the promised age."),
    "user": ("users", "app", "People who may log in, and what they may do."),
    "token": ("tokens", "app", "Access tokens of the REST API, without a user."),
    "apikey": ("api_keys", "app", "API keys for machines: trigger crawls, read metrics."),
    "serve": ("serve", "serve", "Serve the REST API, the console and the metrics."),
    "worker": ("worker", "worker", "Take crawl tasks from the queue, for more hosts."),
    "run-worker": ("run_worker", "run_worker", "Work on Dagster runs on this host, for more hosts."),
    "simulate": ("simulate", "app", "Simulated servers with switchable faults, for trying things out."),
}
SERVING = {"serve", "worker", "run-worker"}
MARKUP = "markdown"
USAGE = 2


class Commands(TyperGroup):
    """Shows every command, but imports only the one that runs."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in COMMANDS:
            self.commands[args[0]] = _load(args[0])
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="mustit",
    cls=Commands,
    help="Crawls Mustit sellers, notices every product change and relays it to the product server.",
    epilog="Example: `mustit demo`, or `mustit up` and a browser.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=MARKUP,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"mustit_pipeline {version('mustit-pipeline')}")
        raise typer.Exit


@app.callback()
def mustit(
    _: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """The options before any command."""


def _not_loaded() -> None:
    raise AssertionError("the command was not loaded")


for _name, (_, _, _line) in COMMANDS.items():
    app.command(_name, help=_line)(_not_loaded)


def _load(name: str) -> Any:
    module, attribute, _ = COMMANDS[name]
    # Only results go to stdout; a process that serves says more of what it does than a command.
    from mustit_pipeline.foundation import logs

    logs.configure("info" if name in SERVING else "warning")
    found = getattr(import_module(f"mustit_pipeline.cli.{module}"), attribute)
    if isinstance(found, typer.Typer):
        found.rich_markup_mode = MARKUP
        return typer.main.get_group(found)
    alone = typer.Typer(rich_markup_mode=MARKUP, add_completion=False)
    alone.command(name)(found)
    return typer.main.get_command(alone)


def run() -> None:
    """Run the command of the arguments; known errors are explained.

    Exit 2 if the arguments are wrong, 1 if they are right but refused.
    """
    _name_unknown_variables()
    try:
        app()
    except SystemExit as end:
        # Click has printed the usage error to stderr, and exits with that error as the context.
        told = getattr(end.__context__, "format_message", None)
        if end.code == USAGE and told is not None and "--json" in sys.argv:
            lead = "명령을 잘못 사용했습니다: " if is_korean() else ""
            print_json({"errorCode": "VALIDATION_USAGE", "message": lead + told()})
        raise
    except (DomainError, EnvironmentFailure) as error:
        _explain(error)
        sys.exit(USAGE if isinstance(error, ValidationFailed) else 1)


def _name_unknown_variables() -> None:
    """Warn of misspelt settings: they have no effect."""
    from mustit_pipeline.settings import unknown_variables

    for name, meant in unknown_variables(os.environ).items():
        hint = "" if meant is None else f"; {meant} was probably meant"
        err.print(f"[yellow]warning:[/yellow] no setting reads {name}{hint}", highlight=False, soft_wrap=True)


def _explain(error: DomainError | EnvironmentFailure) -> None:
    if "--json" in sys.argv:
        print_json({"errorCode": error.code, "message": message_of(error)})
    print_error(message_of(error))
