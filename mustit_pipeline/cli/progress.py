"""Progress of long work on stderr, read from the database: a bar on a terminal, occasional lines elsewhere."""

import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text
from sqlalchemy.exc import SQLAlchemyError

from mustit_pipeline.cli.output import err, lasting, printable, until
from mustit_pipeline.foundation.clock import utc_now

POLL_SECONDS = 0.5
# Reading the progress loads the database: at most this share of the time, as long as it is read each second.
LOOKING_SHARE = 0.1
LONGEST_POLL_SECONDS = 1.0
LINE_SECONDS = 1.0
# Between two equal lines: work that waits is seen to be alive, and fills no log.
SAME_LINE_SECONDS = 60.0
RATE_SECONDS = 15.0
BAR_WIDTH = 24


@dataclass(frozen=True, slots=True)
class Step:
    """The progress of work; `requests` if it sends any, `note` says what it does or waits for."""

    done: int
    total: int | None
    unit: str
    requests: int | None = None
    ends_at: datetime | None = None
    note: str | None = None


@contextmanager
def watched(description: str, look: Callable[[], Step], *, quiet: bool = False) -> Generator[None]:
    """Show progress while the body works; quiet inside of work that already shows progress."""
    if quiet:
        yield
        return
    view = _View(printable(description), look)
    shown = _on_a_screen(view) if err.is_terminal else _in_lines(view)
    with shown, _followed(view):
        yield


class _View:
    """The last progress, and the recent pace."""

    def __init__(self, description: str, look: Callable[[], Step]) -> None:
        self._description = description
        self._look = look
        self._began = time.monotonic()
        self._step: Step | None = None
        self._sent: deque[tuple[float, int]] = deque()
        self._spinner = Spinner("dots")

    def refresh(self) -> float:
        """Read the progress again; returns how long that took."""
        began = time.monotonic()
        step = self._look()
        now = time.monotonic()
        if step.requests is not None:
            self._sent.append((now, step.requests))
            while now - self._sent[0][0] > RATE_SECONDS and len(self._sent) > 2:
                self._sent.popleft()
        self._step = step
        return now - began

    def line(self) -> str | None:
        """The progress as one plain line; None before it was first read."""
        step = self._step
        if step is None:
            return None
        parts = [f"{self._description}: {self._counted(step)}", *self._told(step)]
        return ", ".join(parts) + ("" if step.note is None else f"; {step.note}")

    def __rich__(self) -> RenderableType:
        step = self._step
        bar = Table.grid(padding=(0, 1))
        total = None if step is None else step.total
        filled = ProgressBar(total=total, completed=0 if step is None else step.done, width=BAR_WIDTH, pulse=not total)
        elapsed = lasting(time.monotonic() - self._began)
        bar.add_row(self._spinner, self._description, filled, "" if step is None else self._counted(step), elapsed)
        if step is None:
            return bar
        below = [Text("  " + text, style="dim") for text in (", ".join(self._told(step)), step.note) if text]
        return Group(bar, *below)

    def _counted(self, step: Step) -> str:
        if step.total is None:
            return f"{step.done:,} {step.unit}"
        share = f" ({100 * step.done / step.total:.0f} %)" if step.total else ""
        return f"{step.done:,} of {step.total:,} {step.unit}{share}"

    def _told(self, step: Step) -> list[str]:
        told: list[str] = []
        if step.requests is not None:
            told.append(f"{step.requests:,} requests")
            (first, before), (last, after) = self._sent[0], self._sent[-1]
            if last > first:
                told.append(f"{(after - before) / (last - first):.1f} a second")
        if step.ends_at is not None:
            told.append(f"done {until(step.ends_at, utc_now())}")
        return told


@contextmanager
def _followed(view: _View) -> Generator[None]:
    """Read the progress repeatedly beside the body; the body reports an outage of the database."""
    ended = threading.Event()

    def follow() -> None:
        pause = 0.0
        while not ended.wait(pause):
            pause = POLL_SECONDS
            with suppress(SQLAlchemyError):
                pause = min(max(POLL_SECONDS, view.refresh() / LOOKING_SHARE), LONGEST_POLL_SECONDS)

    with _beside(follow, ended):
        yield


@contextmanager
def _on_a_screen(view: _View) -> Generator[None]:
    with Live(view, console=err, transient=True, refresh_per_second=4):
        yield


@contextmanager
def _in_lines(view: _View) -> Generator[None]:
    """Progress lines for a file or another program: one a second at most, and each complete."""
    ended = threading.Event()

    def tell() -> None:
        told, told_at = None, 0.0
        while not ended.wait(LINE_SECONDS):
            line, now = view.line(), time.monotonic()
            if line is not None and (line != told or now - told_at >= SAME_LINE_SECONDS):
                told, told_at = line, now
                err.print(line, markup=False, highlight=False, soft_wrap=True)

    with _beside(tell, ended):
        yield


@contextmanager
def _beside(work: Callable[[], None], ended: threading.Event) -> Generator[None]:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
