"""`mustit drift`: fields of the marketplace's bodies that changed shape."""

from typing import Annotated

import typer
from rich.table import Table

from mustit_pipeline.api.answers.drift import DriftAnswer
from mustit_pipeline.catalog.sql import drift
from mustit_pipeline.catalog.sql.drift import Drift
from mustit_pipeline.cli.list_options import (
    WIDE_SCREEN,
    Limit,
    Since,
    cut,
    make_table,
    minute,
    show_page,
    since_when,
)
from mustit_pipeline.cli.output import Json, out, print_outcome
from mustit_pipeline.cli.runtime import runtime
from mustit_pipeline.domain.field_paths import FieldPaths
from mustit_pipeline.foundation.clock import utc_now

app = typer.Typer(
    help="Fields of the marketplace's bodies that changed: look at them, accept them.", no_args_is_help=True
)

Path = Annotated[str, typer.Argument(metavar="PATH", help="The field, with everything below it; * is any text.")]


@app.command("list", epilog="Example: `mustit drift list --since 1d`")
def show_all(
    since: Since = None,
    everything: Annotated[bool, typer.Option("--all", help="Accepted ones too.")] = False,
    limit: Limit = 50,
    as_json: Json = False,
) -> None:
    """List fields that are new, missing or of another type, last seen first."""
    with runtime() as ground, ground.database.reading() as connection:
        found = drift.newest(connection, since=since_when(since, utc_now()), accepted=everything, limit=limit)
    empty = "The marketplace's bodies are as they were."
    show_page(found, as_json=as_json, document=DriftAnswer.document_of, table=_table, empty=empty)


@app.command("accept", epilog="Example: `mustit drift accept detail.ProductInfoModule.couponList`")
def accept(path: Path, as_json: Json = False) -> None:
    """Accept a change as harmless: it is still counted, without a warning, and MUSTIT_DRIFT_BLOCK ignores it."""
    wanted = _read(path)
    with runtime() as ground, ground.audited("drift.accept", drift.target(wanted)).transaction() as connection:
        paths = drift.accept(connection, wanted, utc_now())
    _say("Accepted", paths, as_json)


@app.command("forget", epilog="Example: `mustit drift forget listing.items.price`")
def forget(path: Path, as_json: Json = False) -> None:
    """Delete the drift of a field; if it still differs, the next crawl records it again."""
    wanted = _read(path)
    with runtime() as ground, ground.audited("drift.forget", drift.target(wanted)).transaction() as connection:
        paths = drift.forget(connection, wanted)
    _say("Forgot", paths, as_json)


def _read(path: str) -> FieldPaths:
    try:
        return FieldPaths(path)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="PATH") from None


def _say(done: str, paths: list[str], as_json: bool) -> None:
    print_outcome({"paths": paths}, f"{done} {', '.join(paths)}.", as_json=as_json)


def _table(found: list[Drift]) -> Table:
    # On a narrow screen the sample is left out: the path matters more.
    sampled = out.width >= WIDE_SCREEN
    return make_table(
        ["kind", "last seen", "bodies"],
        ["path", "type", *(["sample"] if sampled else [])],
        [
            (
                entry.deviation.kind,
                minute(entry.last_seen_at),
                entry.count,
                entry.deviation.path,
                " → ".join(filter(None, (entry.deviation.expected, entry.deviation.observed))),
                *([cut(entry.deviation.sample)] if sampled else []),
            )
            for entry in found
        ],
    )
