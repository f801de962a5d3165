"""Progress bars for long work, drawn on stderr from what the database says."""

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from mustit_pipeline.cli.output import err

POLL_SECONDS = 0.5


@contextmanager
def watched(description: str, look: Callable[[], tuple[int, int | None]], *, quiet: bool = False) -> Generator[None]:
    """A bar over (done, total), looked up while the body works; nothing is drawn where nobody could see it move."""
    if quiet or not err.is_terminal:
        yield
        return
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=err,
        transient=True,
    )
    ended = threading.Event()
    with bar:
        task = bar.add_task(description, total=None)

        def follow() -> None:
            while not ended.wait(POLL_SECONDS):
                done, total = look()
                bar.update(task, completed=done, total=total)

        follower = threading.Thread(target=follow, daemon=True)
        follower.start()
        try:
            yield
        finally:
            ended.set()
            follower.join()
