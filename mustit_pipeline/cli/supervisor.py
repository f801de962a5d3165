"""Child processes that are restarted when they die, and never outlive their parent."""

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

PR_SET_PDEATHSIG = 1
STOP_SECONDS = 20.0
LONGEST_PAUSE_SECONDS = 30.0
STEADY_SECONDS = 60.0
LAST_LINES = 5


def _die_with_parent() -> None:
    """Linux kills the child when its parent is gone; elsewhere this does nothing."""
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    except (OSError, AttributeError):
        return


@dataclass(slots=True)
class Child:
    """One process, its log, and when it may be started again."""

    name: str
    command: list[str]
    environment: Mapping[str, str]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    restart_at: float = 0.0
    pause: float = 1.0

    def start(self) -> None:
        """Start it in its own session, so that a Ctrl-C reaches only the parent, which stops the children in order."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509  no threads are running when children start
            )
        self.started_at = time.monotonic()

    def last_words(self) -> str:
        """The end of its log."""
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-LAST_LINES:])
        except OSError:
            return ""


@dataclass(slots=True)
class Supervisor:
    """Starts children, restarts and reports those that die, and stops them all."""

    say: Callable[[str], None]
    children: list[Child] = field(default_factory=list[Child])

    def add(self, child: Child) -> None:
        """Start a child and watch it from now on."""
        child.start()
        self.children.append(child)

    def check(self) -> None:
        """Restart children that have died, with growing pauses while one keeps dying."""
        now = time.monotonic()
        for child in self.children:
            if child.process is not None and (code := child.process.poll()) is not None:
                self._end_group(child, signal.SIGKILL)
                if now - child.started_at > STEADY_SECONDS:
                    child.pause = 1.0
                self.say(f"{child.name} ended with {code}; restarting it in {child.pause:g} s. Its last words:")
                self.say(child.last_words())
                child.process = None
                child.restart_at = now + child.pause
                child.pause = min(child.pause * 2, LONGEST_PAUSE_SECONDS)
            if child.process is None and now >= child.restart_at:
                child.start()
                self.say(f"{child.name} is restarted.")

    def stop(self) -> None:
        """Send every child's process group SIGTERM, and SIGKILL after a while."""
        for child in self.children:
            self._end_group(child, signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        for child in self.children:
            if child.process is not None:
                try:
                    child.process.wait(max(0.1, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    self.say(f"{child.name} does not end by itself; killing it.")
        for child in self.children:
            self._end_group(child, signal.SIGKILL)
            if child.process is not None:
                child.process.wait()

    @staticmethod
    def _end_group(child: Child, number: signal.Signals) -> None:
        if child.process is None:
            return
        try:
            os.killpg(child.process.pid, number)
        except ProcessLookupError:
            return
