"""`mustit deletions`: approve or reject deletions that were held back because they were too many."""

from typing import Annotated, Any
from uuid import UUID

import typer
from rich.table import Table

from mustit_pipeline.api.answers.deletions import DeletionHoldAnswer
from mustit_pipeline.catalog import deletion
from mustit_pipeline.catalog.sql import deletions
from mustit_pipeline.cli.list_options import (
    Limit,
    Seller,
    cut,
    known_seller,
    make_table,
    minute,
    short,
    show_page,
    status,
)
from mustit_pipeline.cli.output import Json, local, out, print_fields, print_json, print_outcome
from mustit_pipeline.cli.runtime import Runtime, runtime
from mustit_pipeline.domain.deletion import DeletionHold
from mustit_pipeline.domain.filters import IdPrefix
from mustit_pipeline.domain.states import HoldStatus
from mustit_pipeline.foundation.clock import utc_now

app = typer.Typer(help="Deletions held back because they were too many: approve or reject them.", no_args_is_help=True)

Id = Annotated[str, typer.Argument(metavar="ID", help="The hold's id, or its first digits.")]
ITEMS_SHOWN = 20


@app.command("list", epilog="Example: `mustit deletions list --status OPEN`")
def show_all(
    wanted: Annotated[
        HoldStatus | None,
        typer.Option("--status", case_sensitive=False, metavar="STATUS", help="OPEN, APPROVED, REJECTED or CLOSED."),
    ] = None,
    seller: Seller = None,
    limit: Limit = 20,
    as_json: Json = False,
) -> None:
    """List held deletions: open ones first, then the newest."""
    with runtime() as ground, ground.database.reading() as connection:
        seller_id = known_seller(connection, seller)
        found = deletions.newest_holds(connection, status=wanted, seller_id=seller_id, limit=limit)
    none = "Nothing is held back" if wanted in (None, HoldStatus.OPEN) else f"No hold is {wanted}"
    empty = f"{none}{'' if seller is None else f' of {seller}'}: deletions go their normal way."
    show_page(found, as_json=as_json, document=_document, table=_table, empty=empty)


@app.command("show", epilog="Example: `mustit deletions show 5e0d2a91`")
def show(hold_id: Id, as_json: Json = False) -> None:
    """Show one hold with the products that an approval would delete."""
    with runtime() as ground, ground.database.reading() as connection:
        hold = deletions.find_hold(connection, IdPrefix(hold_id))
        absent = deletions.still_absent(connection, hold) if hold.status is HoldStatus.OPEN else []
        listed = absent or hold.item_nos
        names = deletions.names(connection, hold.seller_id, listed)
    document = _document(hold) | {"stillAbsent": absent}
    if as_json:
        print_json(document)
        return
    fields: dict[str, object] = {
        "id": hold.id,
        "seller": hold.seller_id,
        "status": hold.status,
        "execution": hold.execution_id,
        "held": f"{hold.held_count} of {hold.live_count} products ({hold.share:.0f} %)",
        "opened": local(hold.opened_at),
    }
    if hold.status is HoldStatus.OPEN:
        fields["still absent"] = len(absent)
    else:
        fields["decided"] = local(hold.closed_at)
    print_fields(fields)
    rows = [(item_no, cut(names.get(item_no, ""))) for item_no in listed[:ITEMS_SHOWN]]
    out.print(make_table(["item"], ["name"], rows))
    if len(listed) > ITEMS_SHOWN:
        out.print(f"and {len(listed) - ITEMS_SHOWN} more, all in --json.", highlight=False)
    if hold.status is HoldStatus.OPEN:
        out.print(
            f"`mustit deletions approve {short(hold.id)}` deletes {len(absent)} products; "
            f"`mustit deletions reject {short(hold.id)}` keeps them.",
            highlight=False,
            soft_wrap=True,
        )


@app.command("approve", epilog="Example: `mustit deletions approve 5e0d2a91`")
def approve(hold_id: Id, as_json: Json = False) -> None:
    """Delete the hold's products that are still absent; products that were seen again stay."""
    with runtime() as ground:
        found = _find(ground, hold_id)
        decision = deletion.approve(
            ground.audited("deletion.approve", deletion.target(found)), IdPrefix(str(found)), utc_now()
        )
    if as_json:
        print_json(_document(decision.hold) | {"deleted": decision.deleted})
        return
    seen = f" {decision.kept} of the hold had been seen again and stay." if decision.kept else ""
    sent = " The next relay tells the product server." if decision.deleted else ""
    out.print(
        f"Deleted {len(decision.deleted)} products of {decision.seller_id}.{seen}{sent}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )


@app.command("reject", epilog="Example: `mustit deletions reject 5e0d2a91`")
def reject(hold_id: Id, as_json: Json = False) -> None:
    """Close a hold and delete nothing; a sweep that still misses too many products opens the next hold."""
    with runtime() as ground:
        found = _find(ground, hold_id)
        decision = deletion.reject(
            ground.audited("deletion.reject", deletion.target(found)), IdPrefix(str(found)), utc_now()
        )
    print_outcome(
        _document(decision.hold) | {"deleted": decision.deleted},
        f"Rejected: {decision.kept} products of {decision.seller_id} stay.",
        as_json=as_json,
    )


def _find(ground: Runtime, given: str) -> UUID:
    with ground.database.reading() as connection:
        return deletions.find_hold(connection, IdPrefix(given)).id


def _table(found: list[DeletionHold]) -> Table:
    return make_table(
        ["id", "status", "opened", "held", "of", "share"],
        ["seller"],
        [
            (
                short(hold.id),
                status(hold.status),
                minute(hold.opened_at),
                hold.held_count,
                hold.live_count,
                f"{hold.share:.0f} %",
                cut(hold.seller_id.value),
            )
            for hold in found
        ],
    )


def _document(hold: DeletionHold) -> dict[str, Any]:
    return DeletionHoldAnswer.document_of(hold) | {"itemNos": list(hold.item_nos)}
