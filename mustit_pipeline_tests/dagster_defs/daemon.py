"""A real daemon of Dagster, with whatever dagster.yaml and definitions a test gives it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

DAEMON = str(Path(sys.executable).parent / "dagster-daemon")
PATIENCE_SECONDS = 120.0


@contextmanager
def running_daemon(folder: Path, definitions: str) -> Generator[None]:
    """A daemon with this process's DAGSTER_HOME; its definitions and its log lie in the folder."""
    code = folder / "defined_for_a_test.py"
    code.write_text(definitions)
    with (folder / "daemon.log").open("w") as log:
        daemon = subprocess.Popen([DAEMON, "run", "-f", str(code)], stdout=log, stderr=log, start_new_session=True)
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
