"""The embedded Redis: memory only, because its content is seeded from PostgreSQL."""

import signal
import time
from pathlib import Path

import psutil

from mustit_pipeline.embedded import processes
from mustit_pipeline.embedded.account import Account
from mustit_pipeline.embedded.binaries import redis_programs
from mustit_pipeline.embedded.errors import EmbeddedError, log_size, log_tail
from mustit_pipeline.embedded.layout import REDIS_SOCKET, Layout
from mustit_pipeline.embedded.server_process import ServerProcess
from mustit_pipeline.embedded.sockets import answers_ping

START_SECONDS = 30
STOP_STEPS = [(signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0)]
SETTINGS = {
    "port": "0",
    "unixsocketperm": "700",
    "daemonize": "no",
    # Relative to the working folder: Redis joins its arguments to one text, where a path with spaces would break.
    "dir": "./",
    "pidfile": "redis.pid",
    "save": "",
    "appendonly": "no",
    # Full memory must be an error: an evicted count would break a limit.
    "maxmemory-policy": "noeviction",
}


class RedisServer:
    """The server of one home, started here or found running."""

    name = "Redis"

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._folder = layout.redis_data
        self._sockets: Path | None = None
        self.process = ServerProcess("redis-server", layout.redis_data)

    def usable(self) -> bool:
        """Whether the server runs and its socket exists."""
        return self.process.alive() and self._sockets is not None and (self._sockets / REDIS_SOCKET).exists()

    def running(self) -> psutil.Process | None:
        """The running Redis of this folder, if any."""
        try:
            pid = int((self._folder / "redis.pid").read_text())
        except (OSError, ValueError):
            return None
        return processes.server(pid, "redis-server", self._folder)

    def start(self, account: Account, sockets: Path) -> str:
        """Adopt a running server or start one; returns which."""
        self._sockets = sockets
        found = self.running()
        if found is not None and answers_ping(sockets / REDIS_SOCKET):
            self.process.adopt(found)
            return "found running"
        self.stop()
        self._spawn(account, sockets)
        return "started"

    def stop(self) -> None:
        """Stop the server of this folder and remove the files that a killed server leaves."""
        self.process.end(self.running(), STOP_STEPS)
        (self._folder / "redis.pid").unlink(missing_ok=True)

    def _spawn(self, account: Account, sockets: Path) -> None:
        socket = sockets / REDIS_SOCKET
        socket.unlink(missing_ok=True)
        self._folder.mkdir(mode=0o700, exist_ok=True)
        account.own(self._folder)
        programs = redis_programs()
        if programs is None:
            raise EmbeddedError("Redis is asked for, and there is no redis-server: no wheel of it, and none on PATH")
        command = [programs.program("redis-server"), "--unixsocket", str(socket)]
        for name, value in SETTINGS.items():
            command += [f"--{name}", value]
        log_start = log_size(self._layout.redis_log)
        with self._layout.open_log(self._layout.redis_log) as log:
            self.process.spawn(command, log, account)
        deadline = time.monotonic() + START_SECONDS
        while not answers_ping(socket):
            if not self.process.alive() or time.monotonic() > deadline:
                raise EmbeddedError(f"Redis did not start. {log_tail(self._layout.redis_log, log_start)}")
            time.sleep(processes.POLL_SECONDS)
