"""What commands print: one JSON document or readable text on stdout, everything else on stderr."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import typer
from rich.console import Console
from rich.table import Table

from mustit_pipeline.domain.errors import DomainError

SEOUL = ZoneInfo("Asia/Seoul")

out = Console()
err = Console(stderr=True)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else there.")]


def print_json(document: object) -> None:
    """One JSON document, as it is and for machines."""
    typer.echo(json.dumps(document, ensure_ascii=False, default=str))


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Rows for people."""
    table = Table(*columns, title=title, title_justify="left", header_style="bold")
    for row in rows:
        table.add_row(*("" if cell is None else str(cell) for cell in row))
    out.print(table)


def print_fields(fields: Mapping[str, Any]) -> None:
    """One thing, field by field."""
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in fields.items():
        table.add_row(f"[bold]{name}[/bold]", "" if value is None else str(value))
    out.print(table)


def local(moment: datetime | None) -> str:
    """A time as people in Seoul read it."""
    return "" if moment is None else moment.astimezone(SEOUL).strftime("%Y-%m-%d %H:%M:%S")


def message_of(error: Exception) -> str:
    """An error's text in the user's language."""
    if isinstance(error, DomainError):
        korean = (os.environ.get("LC_ALL") or os.environ.get("LANG") or "").startswith("ko")
        return f"{error.message('ko' if korean else 'en')} [{error.code}]"
    return str(error)
