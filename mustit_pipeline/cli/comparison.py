"""Two versions side by side: short values aligned old → new, long ones word by word or entry by entry."""

from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import cast

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from mustit_pipeline.catalog.diff import FieldChange
from mustit_pipeline.catalog.history import Comparison
from mustit_pipeline.catalog.sql.history import Version
from mustit_pipeline.catalog.wording import PieceKind, whole_diff, word_diff
from mustit_pipeline.cli.list_options import WIDE_SCREEN
from mustit_pipeline.cli.output import local, printable
from mustit_pipeline.cli.values import LONG_TEXT, value_text
from mustit_pipeline.domain.states import LifeCycle

OLD, NEW, QUIET = "red", "green", "dim"
# About a screen: further changed stretches are only counted.
MOST_PIECES = 40
# Without colours, marks show old and new text.
MARKS = {PieceKind.REMOVED: ("[-", "-]"), PieceKind.ADDED: ("{+", "+}")}
STYLES = {PieceKind.REMOVED: f"{OLD} strike", PieceKind.ADDED: NEW, PieceKind.SAME: "", PieceKind.ELIDED: QUIET}


def print_comparison(console: Console, found: Comparison, *, full: bool = False) -> None:
    """Print all differences of two versions; long texts in full only on request."""
    product = found.product
    console.print(Text.assemble((str(product.item_no), "bold"), f" of {product.seller_id}"), soft_wrap=True)
    console.print(Text.assemble(("- ", OLD), _head(found.old)), Text.assemble(("+ ", NEW), _head(found.new)), sep="\n")
    console.print()
    gone = [one.change_set.version for one in (found.old, found.new) if one.change_set.life_cycle is LifeCycle.DELETED]
    if gone:
        console.print(
            f"Version {gone[0]} is the product's deletion: there is no state to compare field by field.",
            highlight=False,
            soft_wrap=True,
        )
        return
    if not found.changes:
        console.print("The two versions are the same, field by field.", highlight=False)
        return
    short = [change for change in found.changes if not _is_long(change)]
    if short:
        console.print(_aligned(short, wide=console.width >= WIDE_SCREEN))
    for change in found.changes:
        if _is_long(change):
            console.print(Text.assemble((change.type.value, QUIET), "  ", (change.field, "bold")))
            console.print(Padding(_body(change, coloured=_coloured(console), full=full), (0, 0, 1, 2)))


def _head(version: Version) -> str:
    found = version.change_set
    return f"version {found.version}, {found.life_cycle} {local(found.detected_at)}"


def _coloured(console: Console) -> bool:
    return console.color_system is not None and not console.no_color


def _is_long(change: FieldChange) -> bool:
    values = (change.old, change.new)
    if any(isinstance(value, list) for value in values):
        return True
    return all(isinstance(value, str) for value in values) and max(len(str(value)) for value in values) > LONG_TEXT


def _aligned(changes: list[FieldChange], *, wide: bool) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style=QUIET)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold", justify="right", style=OLD)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", style=NEW)
    for change in changes:
        kind = change.type.value
        old, new = value_text(change.old, kind), value_text(change.new, kind)
        # On a narrow screen a name is broken after its dot, so that the values fit.
        field = change.field if wide else change.field.replace(".", ".\n")
        table.add_row(kind, Text(field), Text(printable(old)), "→", Text(printable(new)))
    return table


def _body(change: FieldChange, *, coloured: bool, full: bool) -> Text | Table:
    if isinstance(change.old, str) and isinstance(change.new, str):
        return _words(change.old, change.new, coloured=coloured, full=full)
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for mark, entry, style in _entries(_strings(change.old), _strings(change.new)):
        grid.add_row(Text(mark, style=style), Text(printable(entry), style=style))
    return grid


def _words(old: str, new: str, *, coloured: bool, full: bool) -> Text:
    pieces = whole_diff(old, new) if full else word_diff(old, new)
    shown = pieces if full else pieces[:MOST_PIECES]
    text = Text()
    for piece in shown:
        before, after = ("", "") if coloured else MARKS.get(piece.kind, ("", ""))
        words = f" ⋯ {int(piece.text):,} words ⋯ " if piece.kind is PieceKind.ELIDED else piece.text
        text.append(f"{before}{printable(words)}{after}", style=STYLES[piece.kind])
    changes = sum(piece.kind in MARKS for piece in pieces[len(shown) :])
    if changes:
        text.append(f" ⋯ {changes:,} more changes: --full shows them ⋯", style=QUIET)
    return text


def _entries(old: list[str], new: list[str]) -> Iterator[tuple[str, str, str]]:
    """A list, entry by entry; unchanged entries are only counted."""
    for tag, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            yield " ", f"{b - a} unchanged", QUIET
            continue
        yield from (("-", entry, OLD) for entry in old[a:b])
        yield from (("+", entry, NEW) for entry in new[c:d])


def _strings(value: object) -> list[str]:
    return [value_text(entry) for entry in cast("list[object]", value)] if isinstance(value, list) else []
