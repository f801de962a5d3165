"""List options: the options, tables and empty texts that list commands share."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Annotated, Any, TypeVar

import typer
from rich import box
from rich.table import Table
from rich.text import Text
from sqlalchemy import Connection

from mustit_pipeline.cli.output import SEOUL, cell, err, out, print_json, printable
from mustit_pipeline.domain.filters import read_since
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.paging import Page
from mustit_pipeline.sellers.sql import sellers

T = TypeVar("T")
SHORT_ID = 8
WIDE_SCREEN, TIGHT_COLUMN = 100, 12
STATUS_STYLES = {
    "FAILED": "red",
    "REJECTED": "red",
    "DELETED": "red",
    "OPEN": "yellow",
    "WAITING": "yellow",
    "PENDING": "yellow",
    "PAUSED": "yellow",
    "INCOMPLETE": "yellow",
    "SENDING": "cyan",
    "RUNNING": "cyan",
    "UPDATED": "cyan",
    "COMPLETED": "green",
    "COMPLETE": "green",
    "PROCESSED": "green",
    "APPROVED": "green",
    "RELEASED": "green",
    "CLOSED": "green",
    "ENDED": "green",
    "CREATED": "green",
    "RESTORED": "green",
}

# The largest value of an integer column.
LARGEST_NUMBER = 2**31 - 1

Seller = Annotated[str | None, typer.Option("--seller", metavar="ID", help="Only this seller's.")]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="T", help="Only from then on: 2h, 3d, 2026-11-16, 2026-11-16T09:30 (Seoul)."),
]
Limit = Annotated[int, typer.Option("--limit", min=1, max=10_000, help="At most so many, newest first.")]


def known_seller(connection: Connection, given: str | None) -> SellerId | None:
    """The seller of the option, if given; an unknown seller is an error, not an empty list."""
    if given is None:
        return None
    seller_id = SellerId(given)
    sellers.get(connection, seller_id)
    return seller_id


def since_when(given: str | None, now: datetime) -> datetime | None:
    """The start time of the option, if given."""
    return None if given is None else read_since(given, now)


def show_page(
    found: Page[T],
    *,
    as_json: bool,
    document: Callable[[T], dict[str, Any]],
    table: Callable[[list[T]], Table],
    empty: str,
) -> None:
    """One page of a list, as a JSON array or as a table."""
    if as_json:
        print_json([document(row) for row in found.rows])
    elif found.rows:
        out.print(table(found.rows))
    else:
        out.print(empty, markup=False, highlight=False, soft_wrap=True)
    if found.more:
        err.print(f"There are more than these {len(found.rows)}: ask for them with --limit.", highlight=False)


def make_table(fixed: Sequence[str], flexible: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """A table whose `fixed` columns are not folded; the others are fitted to the screen."""
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, collapse_padding=True)
    for name in fixed:
        table.add_column(name, no_wrap=True)
    for name in flexible:
        # On a narrow screen the seller's name is shortened: the other columns matter more.
        tight = name == "seller" and out.width < WIDE_SCREEN
        table.add_column(name, overflow="fold", max_width=TIGHT_COLUMN if tight else None)
    for row in rows:
        table.add_row(*map(cell, row))
    return table


def cut(text: str) -> Text:
    """A text whose lines are cut at the screen's edge; another command shows it in full."""
    return Text(printable(text), no_wrap=True, overflow="ellipsis")


def status(value: str) -> Text:
    """A state in its colour."""
    return Text(value, style=STATUS_STYLES.get(value, ""))


def short(identifier: object) -> str:
    """The short id of tables; commands accept it."""
    return str(identifier)[:SHORT_ID]


def minute(moment: datetime | None) -> str:
    """A short time in Seoul: without the year if it is this year, otherwise without the hour."""
    if moment is None:
        return ""
    there = moment.astimezone(SEOUL)
    return there.strftime("%m-%d %H:%M" if there.year == utc_now().astimezone(SEOUL).year else "%Y-%m-%d")


def iso(moment: datetime | None) -> str | None:
    """A time in ISO format, for JSON."""
    return None if moment is None else moment.isoformat()


def shortened(text: str, length: int) -> str:
    """A text in one line, shortened to a length."""
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[: length - 1]}…"
