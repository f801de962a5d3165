"""The process of a server, started by this keeper or by an earlier one."""

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import psutil

from mustit_pipeline.embedded import processes
from mustit_pipeline.embedded.account import Account
from mustit_pipeline.embedded.errors import EmbeddedError

# The caller's locale, PG* variables and library paths must not reach a server.
ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}
# A backend whose postmaster was killed ends within moments, unless it is computing.
ORPHAN_SECONDS = 2


class ServerProcess:
    """A process whose working folder is the server's data folder, by which it is recognised."""

    def __init__(self, program: str, folder: Path) -> None:
        self._program = program
        self._folder = folder
        self._child: subprocess.Popen[bytes] | None = None
        self._process: psutil.Process | None = None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def alive(self) -> bool:
        """Whether the process runs."""
        if self._child is not None and self._child.poll() is not None:
            return False
        return self._process is not None and not processes.ended(self._process)

    def adopt(self, found: psutil.Process) -> None:
        """Adopt a process that an earlier keeper started."""
        if found.pid != self.pid:
            self._child, self._process = None, found

    def spawn(self, command: list[str], log: BinaryIO, account: Account) -> None:
        """Start the process as this account, in a session of its own."""
        try:
            self._child = subprocess.Popen(
                command,
                cwd=self._folder,
                env=ENVIRONMENT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                umask=0o077,
                user=account.user,
                group=account.group,
                extra_groups=account.extra_groups,
            )
            self._process = psutil.Process(self._child.pid)
        except (OSError, subprocess.SubprocessError, psutil.Error) as error:
            raise EmbeddedError(f"{self._program} cannot be run: {error}") from error

    def kill(self) -> None:
        """Kill the process at once, by its handle."""
        if self._process is not None and not processes.ended(self._process):
            with suppress(psutil.NoSuchProcess):
                self._process.kill()

    def end(self, found: psutil.Process | None, steps: list[tuple[signal.Signals, float]]) -> None:
        """End the server, then all its remaining processes in its folder."""
        if found is not None:
            processes.end(found, steps)
        gone = processes.clear(self._program, self._folder, ORPHAN_SECONDS)
        if self._child is not None:
            self._child.poll()
        self._child = self._process = None
        if not gone:
            raise EmbeddedError(f"A {self._program} of {self._folder} does not end, not even by kill -9")
