"""`mustit outbox`: events for the product server: waiting and failed ones, and retries."""

from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from mustit_pipeline.api.answers.outbox import EventAnswer, EventDetail
from mustit_pipeline.catalog.sql import history
from mustit_pipeline.cli.list_options import (
    Limit,
    Seller,
    cut,
    known_seller,
    make_table,
    minute,
    short,
    shortened,
    show_page,
    status,
)
from mustit_pipeline.cli.output import Json, local, out, print_fields, print_json
from mustit_pipeline.cli.runtime import Runtime, runtime
from mustit_pipeline.cli.values import change_set_text
from mustit_pipeline.domain.filters import IdPrefix
from mustit_pipeline.domain.states import OutboxStatus
from mustit_pipeline.outbox.sql import outbox_list
from mustit_pipeline.outbox.sql.outbox_list import OutboxEntry, Retried

app = typer.Typer(
    help="Events for the product server: what waits or failed, and failed ones sent again.", no_args_is_help=True
)

Id = Annotated[str, typer.Argument(metavar="ID", help="The event's id, or its first digits.")]
Status = Annotated[
    OutboxStatus | None,
    typer.Option("--status", case_sensitive=False, metavar="STATUS", help="WAITING, SENDING, COMPLETED or FAILED."),
]


@app.command("list", epilog="Example: `mustit outbox list --status FAILED`")
def show_all(wanted: Status = None, seller: Seller = None, limit: Limit = 50, as_json: Json = False) -> None:
    """List events, newest first, with the product server's last answer."""
    with runtime() as ground, ground.database.reading() as connection:
        seller_id = known_seller(connection, seller)
        found = outbox_list.newest(connection, status=wanted, seller_id=seller_id, limit=limit)
    what = "There is no event" if wanted is None else f"No event is {wanted}"
    empty = f"{what}{'' if seller is None else f' of {seller}'}."
    show_page(found, as_json=as_json, document=EventAnswer.document_of, table=_table, empty=empty)


@app.command("show", epilog="Example: `mustit outbox show 0b6f13c2`")
def show(outbox_id: Id, as_json: Json = False) -> None:
    """Show one event: its content, its tries and its state."""
    with runtime() as ground, ground.database.reading() as connection:
        entry = outbox_list.find(connection, IdPrefix(outbox_id))
        version = history.version(connection, entry.seller_id, entry.item_no, entry.version)
    if as_json:
        print_json(EventDetail.whole(entry, version).document())
        return
    fields: dict[str, object] = {
        "id": entry.outbox_id,
        "event": entry.event_id,
        "type": entry.event_type,
        "product": f"{entry.item_no} of {entry.seller_id}, version {entry.version}",
        "status": status(entry.status),
        "key": entry.idempotency_key,
        "attempts": f"{entry.attempts}, of which {entry.retry_count} counted as failures",
        "created": local(entry.created_at),
    }
    if entry.next_attempt_at is not None:
        fields["next attempt"] = local(entry.next_attempt_at)
    if entry.completed_at is not None:
        fields["completed"] = local(entry.completed_at)
    if entry.superseded_by is not None:
        fields["superseded by"] = entry.superseded_by
    if entry.last_status is not None:
        fields["last answer"] = f"HTTP {entry.last_status}"
    if entry.last_error:
        fields["last error"] = entry.last_error
    if version is not None:
        fields["says"] = change_set_text(version.change_set)
    print_fields(fields)
    if entry.status is OutboxStatus.FAILED:
        out.print(f"`mustit outbox retry {short(entry.outbox_id)}` sends it again.", highlight=False)


@app.command("retry", epilog="Example: `mustit outbox retry --status FAILED --seller dmont`")
def retry(
    outbox_id: Annotated[
        str | None, typer.Argument(metavar="ID", help="One event's id, or its first digits.", show_default=False)
    ] = None,
    wanted: Annotated[
        OutboxStatus | None, typer.Option("--status", case_sensitive=False, metavar="FAILED", help="All that failed.")
    ] = None,
    seller: Seller = None,
    as_json: Json = False,
) -> None:
    """Retry FAILED events with all their tries: one by its id, or all with --status FAILED.

    An event is not sent if its product has a newer version: that one replaces it.
    """
    if (outbox_id is None) == (wanted is None):
        raise typer.BadParameter("give either an event's ID or --status FAILED")
    if outbox_id is not None and seller is not None:
        raise typer.BadParameter("--seller goes with --status FAILED, not with an ID")
    with runtime() as ground:
        if outbox_id is not None:
            done = _retry_one(ground, IdPrefix(outbox_id))
        else:
            done = _retry_all(ground, wanted or OutboxStatus.FAILED, seller)
    if as_json:
        print_json({"retried": len(done.waiting), "superseded": len(done.superseded)})
    else:
        _tell(done)


def _retry_one(ground: Runtime, wanted: IdPrefix) -> Retried:
    with ground.database.reading() as connection:
        found = outbox_list.find(connection, wanted).outbox_id
    audited = ground.audited("outbox.retry", outbox_list.target(found))
    with audited.transaction() as connection:
        return outbox_list.retry_one(connection, IdPrefix(str(found)))


def _retry_all(ground: Runtime, wanted: OutboxStatus, seller: str | None) -> Retried:
    with ground.database.reading() as connection:
        seller_id = known_seller(connection, seller)
    audited = ground.audited("outbox.retry", outbox_list.target_of_failed(seller_id))
    with audited.transaction() as connection:
        return outbox_list.retry_all(connection, status=wanted, seller_id=seller_id)


def _tell(done: Retried) -> None:
    if not done.waiting and not done.superseded:
        out.print("No event is FAILED: there is nothing to retry.", highlight=False)
    if done.waiting:
        events = "1 event waits" if len(done.waiting) == 1 else f"{len(done.waiting)} events wait"
        out.print(f"{events} again; `mustit relay` sends them now, the daemon by itself.", highlight=False)
    if done.superseded:
        overtaken = "1 is" if len(done.superseded) == 1 else f"{len(done.superseded)} are"
        out.print(f"{overtaken} not sent: a newer version of the product replaces it.", highlight=False)


def _table(found: list[OutboxEntry]) -> Table:
    return make_table(
        ["id", "created", "status", "type", "item", "v"],
        ["seller", "answer"],
        [
            (
                short(one.outbox_id),
                minute(one.created_at),
                status(one.status),
                one.event_type.removeprefix("PRODUCT_"),
                one.item_no,
                one.version,
                cut(one.seller_id),
                _answer(one),
            )
            for one in found
        ],
    )


def _answer(one: OutboxEntry) -> Text:
    """The last answer in one line; `outbox show` has all of it."""
    if one.superseded_by is not None:
        return cut(f"superseded by {short(one.superseded_by)}")
    return cut(shortened(one.last_error or str(one.last_status or ""), 200))
