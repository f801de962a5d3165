"""The process that runs the servers while they have users: python -m mustit_pipeline.embedded.keeper HOME."""

import os
import signal
import sys
import time
from collections import defaultdict, deque
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

from mustit_pipeline.embedded import locks, state
from mustit_pipeline.embedded.account import server_account
from mustit_pipeline.embedded.binaries import postgres_programs, redis_programs
from mustit_pipeline.embedded.errors import EmbeddedError
from mustit_pipeline.embedded.layout import POSTGRES_SOCKET, REDIS_SOCKET, Layout
from mustit_pipeline.embedded.postgres import Postgres
from mustit_pipeline.embedded.redis_server import RedisServer

TICK_SECONDS = 0.1
# A server that dies this often may die again at once: the keeper pauses between two starts.
RESTARTS = 5
RESTARTS_WITHIN_SECONDS = 60
REST_SECONDS = 5


class _StopRequested(BaseException):
    """The keeper was asked to stop, even if the servers have users."""


class _HomeRemovedError(Exception):
    """HOME was removed or replaced."""


def stop_servers(layout: Layout) -> None:
    """Stop both servers of a home, even of an earlier keeper, and clean up; the caller holds the keeper lock."""
    known = state.read(layout)
    state.withdraw(layout)
    layout.redis_wanted.unlink(missing_ok=True)
    RedisServer(layout).stop()
    Postgres(layout).stop()
    _remove_sockets(layout.socket_folder() if known is None else known.sockets)


def _remove_sockets(sockets: Path) -> None:
    for name in (REDIS_SOCKET, POSTGRES_SOCKET, POSTGRES_SOCKET + ".lock"):
        (sockets / name).unlink(missing_ok=True)
    with suppress(OSError):
        sockets.rmdir()


class Keeper:
    """Starts the servers, restarts one that dies, and ends when no user is left."""

    def __init__(self, layout: Layout, lock: int) -> None:
        self._layout = layout
        self._lock = lock
        self._account = server_account(layout)
        self._postgres = Postgres(layout)
        self._redis = RedisServer(layout)
        self._servers: list[Postgres | RedisServer] = []
        self._restarts: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=RESTARTS))

    def keep(self) -> None:
        """Work until the servers have no user."""
        self._account.let_in(self._layout.home)
        self._account.let_run(postgres_programs())
        self._start(self._postgres)
        while True:
            if not locks.is_current(self._lock, self._layout.keeper_lock):
                self._abandon()
            if self._layout.redis_wanted.exists() and self._redis not in self._servers:
                if (programs := redis_programs()) is not None:
                    self._account.let_run(programs)
                self._start(self._redis)
            # Held until this process ends: a new user waits for that and starts a new keeper.
            if locks.try_exclusive(self._layout.users_lock) is not None:
                return
            for server in self._servers:
                if not server.usable():
                    self._restart(server)
            time.sleep(TICK_SECONDS)

    def _start(self, server: Postgres | RedisServer) -> None:
        account = self._account
        sockets = self._layout.make_socket_folder((account.uid, account.gid))
        account.let_in(sockets.parent)
        done = server.start(account, sockets)
        _say(f"{server.name} {done}, pid {server.process.pid}")
        if server not in self._servers:
            self._servers.append(server)
        pids = self._postgres.process.pid, self._redis.process.pid
        state.publish(self._layout, state.State(os.getpid(), str(sockets), *pids, account.notes))

    def _restart(self, server: Postgres | RedisServer) -> None:
        state.withdraw(self._layout)
        restarts, now = self._restarts[server.name], time.monotonic()
        often = len(restarts) == RESTARTS and now - restarts[0] < RESTARTS_WITHIN_SECONDS
        if often and now - restarts[-1] < REST_SECONDS:
            return
        _say(f"{server.name} died or lost its socket, starting it again" + (", after a rest" if often else ""))
        restarts.append(now)
        try:
            self._start(server)
        except EmbeddedError as error:
            # It died again during its start: the other server lives, and this one is retried.
            _say(str(error))

    def _abandon(self) -> None:
        """Kill the servers whose data is gone by their handles; a new HOME may own the file names already."""
        for server in self._servers:
            server.process.kill()
        if not self._layout.home.exists():
            _remove_sockets(self._layout.socket_folder())
        raise _HomeRemovedError


def _say(text: str) -> None:
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} [{os.getpid()}] {text}", file=sys.stderr, flush=True)


def _request_stop(_number: int, _frame: FrameType | None) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    raise _StopRequested


def main(home: Path, lock: int | None) -> int:
    """Keep the servers of this home; `lock` is the keeper lock, taken by the process that started this one."""
    layout = Layout.of(home)
    layout.make_folders()
    held = lock if lock is not None else locks.try_exclusive(layout.keeper_lock)
    if held is None:
        _say("another keeper is at work")
        return 0
    os.ftruncate(held, 0)
    os.pwrite(held, str(os.getpid()).encode(), 0)
    code = 0
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _request_stop)
        Keeper(layout, held).keep()
        _say("stopping the servers: no user is left")
    except _StopRequested:
        _say("stopping the servers: asked to")
    except _HomeRemovedError:
        return 1
    except (EmbeddedError, OSError) as error:
        _say(str(error))
        code = 1
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    stop_servers(layout)
    _say("stopped")
    return code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else None))
