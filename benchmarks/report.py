"""How results are shown: tables on the terminal, one JSON document on disk."""

import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.table import Table as RichTable


@dataclass(frozen=True, slots=True)
class Table:
    """Rows for people."""

    title: str
    heads: list[str]
    rows: list[list[str]]


@dataclass(frozen=True, slots=True)
class Target:
    """A promise and what was measured of it."""

    name: str
    measured: float
    at_least: float | None = None
    at_most: float | None = None

    @property
    def is_met(self) -> bool:
        """Whether the promise is kept."""
        low = self.at_least is None or self.measured >= self.at_least
        return low and (self.at_most is None or self.measured <= self.at_most)


def p95(seconds: Sequence[float]) -> float:
    """The time that 95 of 100 stayed below."""
    taken = sorted(seconds)
    return taken[min(len(taken) - 1, round(0.95 * len(taken)))]


class Part(Protocol):
    """What a benchmark hands over."""

    def table(self) -> Table: ...
    def targets(self) -> list[Target]: ...
    def document(self) -> dict[str, object]: ...


def show(parts: Sequence[Part]) -> bool:
    """Print everything; says whether every target was met."""
    # Wide enough for every column even where the output is no terminal.
    console = Console(width=None if sys.stdout.isatty() else 160)
    for part in parts:
        console.print(_rich(part.table()))
    targets = [target for part in parts for target in part.targets()]
    rows = [[target.name, _bound(target), f"{target.measured:.3f}", _verdict(target)] for target in targets]
    console.print(_rich(Table("targets", ["what", "target", "measured", ""], rows)))
    return all(target.is_met for target in targets)


def write(parts: dict[str, Part], output: Path) -> None:
    """The same as JSON, with what it was measured on."""
    document = {
        "measuredAt": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"cores": os.cpu_count(), "python": platform.python_version(), "system": platform.system()},
        "parts": {name: part.document() for name, part in parts.items()},
        "targets": [asdict(target) | {"is_met": target.is_met} for part in parts.values() for target in part.targets()],
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    print(f"written to {output}", file=sys.stderr)


def megabytes(count: int) -> str:
    """Bytes for people."""
    return f"{count / 1024 / 1024:.0f}"


def _rich(table: Table) -> RichTable:
    rich = RichTable(title=table.title, title_justify="left")
    for head in table.heads:
        rich.add_column(head)
    for row in table.rows:
        rich.add_row(*row)
    return rich


def _bound(target: Target) -> str:
    return f"≥ {target.at_least:g}" if target.at_least is not None else f"≤ {target.at_most:g}"


def _verdict(target: Target) -> str:
    return "[green]met[/green]" if target.is_met else "[red]missed[/red]"
