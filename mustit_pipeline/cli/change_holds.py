"""`mustit holds`: changes held back because too many of a seller's products looked wrong at once."""

from typing import Annotated

import typer
from rich.table import Table

from mustit_pipeline.api.answers.holds import ChangeHoldAnswer
from mustit_pipeline.catalog import releasing
from mustit_pipeline.catalog.processing import ProcessingReport
from mustit_pipeline.catalog.sql import change_holds
from mustit_pipeline.cli.list_options import Limit, cut, make_table, minute, short, show_page, status
from mustit_pipeline.cli.output import Json, print_outcome
from mustit_pipeline.cli.progress import Step, watched
from mustit_pipeline.cli.runtime import runtime
from mustit_pipeline.domain.change_hold import ChangeHold, Suspicion
from mustit_pipeline.domain.states import ChangeHoldStatus
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.clock import utc_now

app = typer.Typer(help="Changes held back because too many looked wrong at once: release them.", no_args_is_help=True)


@app.command("list", epilog="Example: `mustit holds list --status OPEN`")
def show_all(
    wanted: Annotated[
        ChangeHoldStatus | None,
        typer.Option("--status", case_sensitive=False, metavar="STATUS", help="OPEN, RELEASED or CLOSED."),
    ] = None,
    limit: Limit = 20,
    as_json: Json = False,
) -> None:
    """List held changes, open ones first: prices that jumped, products that lost fields, and of how many.

    A hold closes by itself when a later crawl finds few enough suspicious products.
    """
    with runtime() as ground, ground.database.reading() as connection:
        found = change_holds.newest(connection, status=wanted, limit=limit)
    empty = "No changes are held back." if wanted in (None, ChangeHoldStatus.OPEN) else f"No hold is {wanted}."
    show_page(found, as_json=as_json, document=ChangeHoldAnswer.document_of, table=_table, empty=empty)


@app.command("release", epilog="Example: `mustit holds release dmont`")
def release(
    seller: Annotated[str, typer.Argument(metavar="SELLER", help="The seller whose changes are real.")],
    as_json: Json = False,
) -> None:
    """Publish a seller's held changes, after you have checked some of them on the marketplace."""
    state, key = ProcessingReport(), SellerId(seller)

    def follow(now: ProcessingReport) -> None:
        nonlocal state
        state = now

    with runtime() as ground, watched("publishing", lambda: Step(sum(state.versions.values()), None, "versions")):
        database = ground.audited("hold.release", releasing.target(key))
        report = releasing.release(database, key, now=utc_now, progress=follow)
    published = sum(report.versions.values())
    print_outcome(
        {"sellerId": seller, "published": published, "changes": dict(report.changes)},
        f"Published {published} changes of {seller}. The next relay tells the product server.",
        as_json=as_json,
    )


def _table(found: list[ChangeHold]) -> Table:
    return make_table(
        ["id", "status", "opened", "jumped", "emptied", "of", "share"],
        ["seller", "examples"],
        [_row(hold, hold.suspicion) for hold in found],
    )


def _row(hold: ChangeHold, found: Suspicion) -> tuple[object, ...]:
    return (
        short(hold.id),
        status(hold.status),
        minute(hold.opened_at),
        found.jumped,
        found.emptied,
        found.looked_at,
        f"{found.share:.0f} %",
        cut(hold.seller_id.value),
        cut(", ".join(map(str, found.examples))),
    )
