"""`mustit triggers`: parked messages that asked for crawls."""

from typing import Annotated, Any

import typer
from rich.table import Table

from mustit_pipeline.cli.list_options import Limit, cut, iso, make_table, minute, short, show_page
from mustit_pipeline.cli.output import Json, print_outcome
from mustit_pipeline.cli.runtime import runtime
from mustit_pipeline.domain.errors import NotFound
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.scheduling.sql import triggers
from mustit_pipeline.scheduling.sql.triggers import ParkedMessage

app = typer.Typer(
    help="Messages that asked for crawls and are parked: look at them, dismiss them.", no_args_is_help=True
)


@app.command("list", epilog="Example: `mustit triggers list --json`")
def show_all(
    everything: Annotated[bool, typer.Option("--all", help="Dismissed ones too.")] = False,
    limit: Limit = 20,
    as_json: Json = False,
) -> None:
    """List parked messages, newest first: why they were parked, and their bodies."""
    with runtime() as ground, ground.database.reading() as connection:
        found = triggers.newest_parked(connection, everything=everything, limit=limit)
    show_page(found, as_json=as_json, document=_document, table=_table, empty="No message is parked.")


@app.command("dismiss", epilog="Example: `mustit triggers dismiss --all`")
def dismiss(
    message_id: Annotated[str | None, typer.Argument(metavar="ID", help="The message's id, or how it begins.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every parked message.")] = False,
    as_json: Json = False,
) -> None:
    """Dismiss parked messages that you have looked at: their alert ends. No crawl starts from them."""
    if (not message_id) is not everything:
        raise typer.BadParameter("give either a message's id or --all")
    with runtime() as ground, ground.database.transaction() as connection:
        dismissed = triggers.dismiss(connection, message_id or "", utc_now())
    if message_id and not dismissed:
        raise NotFound(
            "NOT_FOUND_PARKED_MESSAGE",
            korean=f"보류된 메시지를 찾을 수 없습니다: {message_id}",
            english=f"There is no parked message that begins with {message_id}: see `mustit triggers list`",
        )
    print_outcome(
        {"dismissed": dismissed},
        f"{len(dismissed)} messages dismissed." if dismissed else "No message is parked.",
        as_json=as_json,
    )


def _table(found: list[ParkedMessage]) -> Table:
    return make_table(
        ["id", "received", "dismissed", "reason"],
        ["body"],
        [
            (short(one.message_id), minute(one.received_at), minute(one.dismissed_at), one.reason.value, cut(one.body))
            for one in found
        ],
    )


def _document(one: ParkedMessage) -> dict[str, Any]:
    return {
        "messageId": one.message_id,
        "queue": one.queue,
        "reason": one.reason.value,
        "body": one.body,
        "receivedAt": iso(one.received_at),
        "dismissedAt": iso(one.dismissed_at),
    }
