"""What commands print: one JSON document or readable text on stdout, everything else on stderr."""

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, NoReturn
from zoneinfo import ZoneInfo

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mustit_pipeline.domain.errors import DomainError
from mustit_pipeline.environment_failure import EnvironmentFailure

SEOUL = ZoneInfo("Asia/Seoul")

# A pipe has no width: tables get a fixed one.
out = Console(width=None if sys.stdout.isatty() else 160)
err = Console(stderr=True)

# Control characters except line ends and tabs, and characters that change the text direction: a terminal would obey
# them.
_OBEYED = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else there.")]


def print_json(document: object) -> None:
    """Print one JSON document."""
    typer.echo(json.dumps(document, ensure_ascii=False, default=str))


def print_outcome(document: object, line: str, *, as_json: bool) -> None:
    """What a command has done: a JSON document, or one line for people, which may contain brackets."""
    if as_json:
        print_json(document)
    else:
        out.print(line, markup=False, highlight=False, soft_wrap=True)


def end_load(added: int, known: int, rejected: Sequence[tuple[int, str]], *, word: str, as_json: bool) -> NoReturn:
    """What came of the lines of a file, and the end of the command; exit 1 if a line was refused."""
    lines = [{"line": number, "reason": reason} for number, reason in rejected]
    document = {"added": added, "known": known, "rejected": lines}
    print_outcome(document, f"{added} {word}, {known} known already.", as_json=as_json)
    for number, reason in () if as_json else rejected:
        err.print(f"line {number}: {reason}", markup=False, highlight=False)
    raise typer.Exit(1 if rejected else 0)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows as a table; names may contain brackets, so only a Text is styled."""
    table = Table(title=title, title_justify="left", header_style="bold")
    for name in columns:
        table.add_column(name, overflow="fold", no_wrap=name == columns[0])
    for row in rows:
        table.add_row(*map(cell, row))
    out.print(table)


def print_fields(fields: Mapping[str, Any], *, leave_out_empty: bool = False) -> None:
    """Print one thing, field by field."""
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in fields.items():
        if value is None and leave_out_empty:
            continue
        table.add_row(Text(name, style="bold"), cell(value))
    out.print(table)


def cell(value: object) -> Text:
    """A value as a table cell; a Text is used as it is."""
    return value if isinstance(value, Text) else Text("" if value is None else printable(str(value)))


def printable(text: str) -> str:
    """Foreign text, such as sellers', without control characters that a terminal would obey."""
    return _OBEYED.sub("\ufffd", text)


def local(moment: datetime | None) -> str:
    """A time in Seoul."""
    return "" if moment is None else moment.astimezone(SEOUL).strftime("%Y-%m-%d %H:%M:%S")


def until(moment: datetime, now: datetime) -> str:
    """A future time, as a distance and as a time in Seoul."""
    seconds = (moment - now).total_seconds()
    if seconds <= 0:
        return "now"
    clock = moment.astimezone(SEOUL).strftime("%H:%M:%S" if seconds < 86400 else "%Y-%m-%d %H:%M")
    return f"in {'less than 1 s' if seconds < 1 else lasting(seconds)} ({clock})"


def lasting(seconds: float) -> str:
    """A time span in its largest unit and the one below it."""
    left, parts = round(seconds), list[str]()
    for size, name in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        number, left = divmod(left, size)
        if number or (name == "s" and not parts):
            parts.append(f"{number} {name}")
        elif parts:
            break
    return " ".join(parts[:2])


def print_error(message: str) -> None:
    """Print an error to stderr; it may contain brackets."""
    err.print("[red]error:[/red]", end=" ")
    err.print(printable(message), markup=False, highlight=False, soft_wrap=True)


def message_of(error: Exception) -> str:
    """An error's text in the user's language."""
    if isinstance(error, DomainError | EnvironmentFailure):
        return f"{error.message('ko' if is_korean() else 'en')} [{error.code}]"
    return str(error)


def is_korean() -> bool:
    """Whether the user reads Korean."""
    return (os.environ.get("LC_ALL") or os.environ.get("LANG") or "").startswith("ko")
