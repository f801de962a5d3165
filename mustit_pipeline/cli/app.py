"""The `mustit` command: its groups, and errors said so that a person can act on them."""

import logging
import sys

import structlog
import typer

from mustit_pipeline.cli import crawl, database, demo, doctor, executions, relay, sellers, simulate, up
from mustit_pipeline.cli.output import err, message_of, print_json
from mustit_pipeline.domain.errors import DomainError
from mustit_pipeline.embedded import EmbeddedError
from mustit_pipeline.settings import SettingsError
from mustit_pipeline.store.database import DatabaseUnreachable
from mustit_pipeline.store.schema import SchemaMismatch

EXPECTED = (DomainError, SettingsError, EmbeddedError, DatabaseUnreachable, SchemaMismatch, relay.RelayFailed)

app = typer.Typer(
    name="mustit",
    help="Crawls Mustit sellers, notices every product change and relays it to the product server.",
    epilog="Start with `mustit demo` or `mustit up`.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.command("up")(up.up)
app.command("demo")(demo.demo)
app.command("doctor")(doctor.doctor)
app.command("crawl")(crawl.crawl)
app.command("relay")(relay.relay)
app.add_typer(database.app, name="db")
app.add_typer(sellers.app, name="seller")
app.add_typer(executions.app, name="execution")
app.add_typer(simulate.app, name="simulate")


def main() -> None:
    """Run the command; exit 0 done, 1 failed, 2 usage."""
    structlog.configure(
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
    )
    try:
        app()
    except EXPECTED as error:
        _explain(error)
        sys.exit(1)


def _explain(error: Exception) -> None:
    if "--json" in sys.argv:
        code = error.code if isinstance(error, DomainError) else type(error).__name__
        print_json({"errorCode": code, "message": message_of(error)})
    err.print("[red]error:[/red]", end=" ")
    err.print(message_of(error), markup=False, highlight=False, soft_wrap=True)
