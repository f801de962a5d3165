"""Simulated servers forked off one process that has imported all they need: a few milliseconds instead of a third of
a second for each. Each is a process of its own with its own journal, as `python -m mustit_pipeline.simulator` is."""

import atexit
import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import cast

from mustit_pipeline.simulator.process import RunningSimulator, SimulatorStartError

Main = Callable[[Sequence[str]], int]

# Descriptors are closed in ascending order: this one after the address that the server listens on.
_LAST_DESCRIPTOR = 200
_POLL_SECONDS = 30.0


def forked_marketplace(state: Path, seed: int) -> RunningSimulator:
    """A marketplace without limits."""
    limits = ("--requests-per-window", "1000000", "--min-gap-seconds", "0")
    return _Forked(["marketplace", "--state", str(state), "--seed", str(seed), *limits])


def forked_product_server(state: Path) -> RunningSimulator:
    """A product server that asks for no token."""
    return _Forked(["product-server", "--state", str(state)], {"MUSTIT_PRODUCT_SERVER_TOKEN": ""})


class _Forked(RunningSimulator):
    def _started(self, port: str | None = None) -> subprocess.Popen[bytes]:
        arguments = [*self._arguments, "--watch-stdin", *(() if port is None else ("--port", port))]
        process = _Process(arguments, dict(self._environment))
        line = process.stdout.readline()
        if not line:
            raise SimulatorStartError(f"{' '.join(self._arguments)} ended before it listened; see stderr")
        self.url = json.loads(line)["url"]
        return cast(subprocess.Popen[bytes], process)


class _Process:
    """What RunningSimulator uses of a Popen, for a process that is not this one's child."""

    def __init__(self, arguments: list[str], environment: dict[str, str]) -> None:
        its_stdin, our_stdin = os.pipe()
        our_stdout, its_stdout = os.pipe()
        our_life, its_life = os.pipe()
        theirs = [its_stdin, its_stdout, its_life]
        self.pid = _origin().fork(arguments, environment, theirs)
        for descriptor in theirs:
            os.close(descriptor)
        self.stdin, self.stdout = os.fdopen(our_stdin, "wb", 0), os.fdopen(our_stdout, "rb")
        self._life: int | None = our_life

    def poll(self) -> int | None:
        return self._ended_within(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._ended_within(_POLL_SECONDS if timeout is None else timeout)
        if code is None:
            raise subprocess.TimeoutExpired("simulator", timeout or _POLL_SECONDS)
        return code

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def _ended_within(self, seconds: float) -> int | None:
        """The other end of a pipe that only the server holds is closed when it ends, however it ends."""
        if self._life is not None:
            if not select.select([self._life], [], [], seconds)[0]:
                return None
            os.close(self._life)
            self._life = None
        return 0


class _Origin:
    """The process that the servers are forked off; it ends with this one."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        atexit.register(self._end)

    def fork(self, arguments: list[str], environment: dict[str, str], descriptors: list[int]) -> int:
        request = json.dumps([arguments, environment]).encode() + b"\n"
        sent = socket.send_fds(self._ours, [request], descriptors)
        self._ours.sendall(request[sent:])
        return int(_line(self._ours))

    def _end(self) -> None:
        self._ours.close()
        self._process.wait()


@cache
def _origin() -> _Origin:
    return _Origin()


def _line(connection: socket.socket, begun: bytes = b"") -> bytes:
    while not begun.endswith(b"\n"):
        more = connection.recv(65536)
        if not more:
            return b""
        begun += more
    return begun


def _fork_for(connection: socket.socket) -> None:
    """Fork a server for each request, until no more can come."""
    # Imported before the first fork: that is what this process is for.
    from mustit_pipeline.simulator.__main__ import main

    # The kernel forgets servers that have ended.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        begun, descriptors, _, _ = socket.recv_fds(connection, 65536, 3)
        request = _line(connection, begun) if begun else b""
        if not request:
            return
        pid = os.fork()
        if pid == 0:
            connection.close()
            _be_a_server(main, request, *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        connection.sendall(f"{pid}\n".encode())


def _be_a_server(main: Main, request: bytes, stdin: int, stdout: int, life: int) -> None:
    code = 1
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        fcntl.fcntl(life, fcntl.F_DUPFD, _LAST_DESCRIPTOR)
        os.dup2(stdin, 0)
        os.dup2(stdout, 1)
        for descriptor in (stdin, stdout, life):
            os.close(descriptor)
        sys.stdin, sys.stdout = os.fdopen(0, "rb", closefd=False), os.fdopen(1, "w", closefd=False)  # pyright: ignore[reportAttributeAccessIssue]
        arguments, environment = json.loads(request)
        os.environ.clear()
        os.environ.update(environment)
        code = main(arguments)
    finally:
        os._exit(code)


if __name__ == "__main__":
    _fork_for(socket.socket(fileno=0))
