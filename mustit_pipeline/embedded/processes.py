"""Find and end server processes, identified by name and working folder, never by pid alone."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

POLL_SECONDS = 0.02


def ended(process: psutil.Process) -> bool:
    """Whether a process has ended; a zombie counts as ended."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def server(pid: int, name: str, folder: Path) -> psutil.Process | None:
    """The process with this pid if it is a server of this folder: pids are reused."""
    try:
        process = psutil.Process(pid)
        if process.name() == name and process.cwd() == os.path.realpath(folder) and not ended(process):
            return process
    except (psutil.Error, OSError, ValueError):
        pass
    return None


def servers(name: str, folder: Path) -> Iterator[psutil.Process]:
    """Every process of a server of this folder, including children that outlived it."""
    for process in psutil.process_iter(["name"]):
        if process.info["name"] == name and (found := server(process.pid, name, folder)) is not None:
            yield found


def is_keeper(pid: int, home: Path) -> bool:
    """Whether this pid is the keeper of this home."""
    try:
        process = psutil.Process(pid)
        arguments = process.cmdline()
        return "mustit_pipeline.embedded.keeper" in arguments and str(home) in arguments and not ended(process)
    except (psutil.Error, OSError, ValueError):
        return False


def end(process: psutil.Process, steps: list[tuple[signal.Signals, float]]) -> None:
    """Send each signal and wait its seconds, until the process has ended."""
    for number, seconds in steps:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)
        if _wait_until_ended([process], seconds):
            return


def clear(name: str, folder: Path, patience: float) -> bool:
    """Wait for the remaining processes of a dead server in this folder, then kill them; True once none is left."""
    left = list(servers(name, folder))
    if not left or _wait_until_ended(left, patience):
        return True
    for process in left:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    return _wait_until_ended(left, patience)


def _wait_until_ended(processes: list[psutil.Process], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not all(ended(process) for process in processes):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True
