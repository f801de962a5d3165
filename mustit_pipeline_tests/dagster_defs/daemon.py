"""A real daemon of Dagster, with whatever dagster.yaml and definitions a test gives it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

DAEMON = str(Path(sys.executable).parent / "dagster-daemon")
PATIENCE_SECONDS = 120.0


@contextmanager
def running_daemon(folder: Path, definitions: str, *, locations: Sequence[str] = ("one",)) -> Generator[None]:
    """A daemon with this process's DAGSTER_HOME; each of its code locations has the same definitions."""
    files = [folder / f"{name}.py" for name in locations]
    for file in files:
        file.write_text(definitions)
    with (folder / "daemon.log").open("w") as log:
        command = [DAEMON, "run", *(part for file in files for part in ("-f", str(file)))]
        daemon = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            yield
        finally:
            os.killpg(daemon.pid, signal.SIGTERM)
            try:
                daemon.wait(20)
            finally:
                if daemon.poll() is None:
                    os.killpg(daemon.pid, signal.SIGKILL)


def until(reached: Callable[[], bool]) -> None:
    """Wait for something that a daemon does in its own time."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.5)
