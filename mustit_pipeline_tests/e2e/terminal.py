"""A command on a terminal of its own: what it draws, when it drew it, and keys that a person presses.

Shows a recording as text:
`python -m mustit_pipeline_tests.e2e.terminal --seconds 5 --key ctrl-c --every 2 mustit crawl dmont`
"""

import argparse
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
KEYS = {"ctrl-c": b"\x03", "none": b""}
PATIENCE_SECONDS = 60.0
ENDING_SECONDS = 0.1


class Drawn(NamedTuple):
    """What was written at one moment, in seconds since the start."""

    at: float
    text: str


class Terminal:
    """A process whose terminal, the controlling one too, is ours to read and to type into."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], *, columns: int = 100) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self.drawn: list[Drawn] = []
        self._began = time.monotonic()
        self.process = subprocess.Popen(
            list(command),
            env={**environment, "TERM": "xterm-256color"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            # Ctrl-C reaches every process of the terminal, as it does a person's.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
        )
        os.close(theirs)

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)

    def press(self, key: bytes) -> None:
        """What a person types; Ctrl-C is `KEYS["ctrl-c"]`."""
        os.write(self._ours, key)

    def until(self, condition: Callable[[], bool], patience: float = PATIENCE_SECONDS) -> None:
        """Read what is drawn until that holds."""
        end = time.monotonic() + patience
        while not condition():
            assert time.monotonic() < end, f"it never came to that:\n{self.text}"
            self._read()

    def end(self) -> int:
        """Read until the process has ended; its exit code, below zero for a signal that killed it."""
        self.until(lambda: self.process.poll() is not None)
        while self._read():
            pass
        return self.process.returncode

    def record(self, seconds: float) -> None:
        """Read for so long, or until the process has ended."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.process.poll() is None:
            self._read()

    @property
    def text(self) -> str:
        """Everything that was drawn, without colours and moves."""
        return "".join(CONTROL.sub("", drawn.text) for drawn in self.drawn)

    def lines(self, every: float = 0.0) -> list[tuple[float, str]]:
        """Every line that was drawn, in order and each time it was drawn, and when; or so many seconds apart.

        How it ended is always among them.
        """
        found: list[tuple[float, str]] = []
        shown = float("-inf")
        for at, text in self.drawn:
            if at - shown < every and at < self.drawn[-1].at - ENDING_SECONDS:
                continue
            shown = at
            for line in re.split(r"[\r\n]+", CONTROL.sub("", text)):
                if line.strip():
                    found.append((at, line.rstrip()))
        return found

    def _read(self) -> bool:
        """Whether something came within a moment."""
        if not select.select([self._ours], [], [], 0.05)[0]:
            return False
        try:
            read = os.read(self._ours, 65536)
        except OSError:
            # Linux says so when the other end of a terminal is closed.
            return False
        self.drawn.append(Drawn(time.monotonic() - self._began, read.decode(errors="replace")))
        return bool(read)


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="when the key is pressed")
    parser.add_argument("--key", choices=KEYS, default="none")
    parser.add_argument("--every", type=float, default=0.0, help="seconds between the moments that are shown")
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    with Terminal(options.command, os.environ, columns=options.columns) as terminal:
        terminal.record(options.seconds)
        if terminal.process.poll() is None and KEYS[options.key]:
            terminal.press(KEYS[options.key])
        code = terminal.end()
    shown = ""
    for at, line in terminal.lines(options.every):
        if line != shown:
            print(f"{at:7.2f} s  {line}")
        shown = line
    print(f"exit {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}")


if __name__ == "__main__":
    _main()
