"""Sharing of the servers: users hold a shared lock, and the keeper stops when no user holds it."""

import atexit
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mustit_pipeline.embedded import locks, state
from mustit_pipeline.embedded.errors import EmbeddedError, log_size, log_tail
from mustit_pipeline.embedded.layout import POSTGRES_SOCKET, REDIS_SOCKET, Layout
from mustit_pipeline.embedded.sockets import accepts, answers_ping

# initdb, recovery and another user's stop may all come first.
ATTACH_SECONDS = 300
ATTEMPTS = 3
RELEASE_SECONDS = 10
STOP_SECONDS = 90


@dataclass(frozen=True)
class Servers:
    """The addresses of the running servers; Redis runs only if a user asked for it."""

    database_url: str
    dagster_database_url: str
    redis_url: str


@dataclass(frozen=True)
class ServersStatus:
    """The running servers of a home, and whether they have users."""

    running: bool
    in_use: bool
    keeper_pid: int | None
    postgres_pid: int | None
    redis_pid: int | None
    socket_dir: Path | None


@dataclass(frozen=True)
class _Hold:
    """This process's registration as a user; a forked child inherits the descriptor but not the registration."""

    pid: int
    lock: int


_holds: dict[Path, _Hold] = {}
_guard = threading.RLock()
_keepers: list[subprocess.Popen[bytes]] = []


def _forget_guard() -> None:
    global _guard  # noqa: PLW0603  a thread of the parent may have held it during the fork
    _guard = threading.RLock()


def _release_all() -> None:
    for home in list(_holds):
        # A home that was removed meanwhile must not cause a traceback at the end of a command.
        with suppress(EmbeddedError, OSError):
            release(home)


os.register_at_fork(after_in_child=_forget_guard)
atexit.register(_release_all)


def attach(home: Path, *, redis: bool = True) -> Servers:
    """Use the servers of this home until this process ends; starts those that do not run."""
    layout = Layout.of(home)
    with _guard:
        layout.make_folders()
        fresh = _take_place(layout)
        try:
            ready = _ensure(layout, redis)
        except BaseException:
            if fresh:
                os.close(_holds.pop(layout.home).lock)
            raise
    base = f"postgres@/{{}}?host={ready.sockets}&port=5432"
    return Servers(
        database_url="postgresql+psycopg://" + base.format("mustit"),
        dagster_database_url="postgresql+psycopg2://" + base.format("mustit_dagster"),
        redis_url=f"unix://{ready.sockets / REDIS_SOCKET}?db=0",
    )


def release(home: Path, wait: bool = True) -> None:
    """Stop using the servers; with `wait` the last user waits for their stop."""
    layout = Layout.of(home)
    with _guard:
        hold = _holds.get(layout.home)
        if hold is None or hold.pid != os.getpid():
            return
        del _holds[layout.home]
        os.close(hold.lock)
    if wait and layout.run.is_dir():
        _wait_for_stop_if_last(layout)


def stop(home: Path) -> None:
    """Stop the servers now, even if they have users."""
    from mustit_pipeline.embedded import keeper, processes

    layout = Layout.of(home)
    release(layout.home, wait=False)
    if not layout.run.is_dir():
        return
    asked: int | None = None
    deadline = time.monotonic() + STOP_SECONDS
    while (lock := locks.try_exclusive(layout.keeper_lock)) is None:
        pid = _keeper_pid(layout)
        if pid is not None and pid != asked and processes.is_keeper(pid, layout.home):
            os.kill(pid, signal.SIGTERM)
            asked = pid
        if time.monotonic() > deadline:
            raise EmbeddedError(f"The servers of {layout.home} do not stop. {log_tail(layout.keeper_log)}")
        time.sleep(locks.POLL_SECONDS)
    try:
        keeper.stop_servers(layout)
    finally:
        os.close(lock)
        _collect_keepers()


def status(home: Path) -> ServersStatus:
    """The running servers of this home; starts and changes nothing."""
    from mustit_pipeline.embedded import processes
    from mustit_pipeline.embedded.postgres import Postgres
    from mustit_pipeline.embedded.redis_server import RedisServer

    layout = Layout.of(home)
    pid = _keeper_pid(layout)
    keeper_pid = pid if pid is not None and processes.is_keeper(pid, layout.home) else None
    postgres, redis = Postgres(layout).running(), RedisServer(layout).running()
    known = state.read(layout) if keeper_pid is not None else None
    return ServersStatus(
        running=known is not None and postgres is not None and accepts(known.sockets / POSTGRES_SOCKET),
        in_use=_in_use(layout),
        keeper_pid=keeper_pid,
        postgres_pid=None if postgres is None else postgres.pid,
        redis_pid=None if redis is None else redis.pid,
        socket_dir=None if known is None else known.sockets,
    )


def _take_place(layout: Layout) -> bool:
    """Take the users' lock; False if this process holds it already."""
    hold = _holds.get(layout.home)
    if hold is not None and hold.pid == os.getpid() and locks.is_current(hold.lock, layout.users_lock):
        return False
    lock = locks.shared(layout.users_lock, ATTACH_SECONDS)
    if lock is None:
        raise EmbeddedError(f"The servers of {layout.home} have been stopping too long. {log_tail(layout.keeper_log)}")
    if hold is not None:
        os.close(hold.lock)
    _holds[layout.home] = _Hold(os.getpid(), lock)
    return True


def _ensure(layout: Layout, redis: bool) -> state.State:
    """Wait until a keeper has the servers ready; starts a keeper if there is none."""
    deadline = time.monotonic() + ATTACH_SECONDS
    log_start = log_size(layout.keeper_log)
    ours: subprocess.Popen[bytes] | None = None
    attempts = 0
    while True:
        if redis and not layout.redis_wanted.exists():
            layout.redis_wanted.touch()
            layout.give_to_home_owner(layout.redis_wanted)
        lock = locks.try_exclusive(layout.keeper_lock)
        if lock is not None:
            # A keeper that was stopped or killed meanwhile is replaced; one that gave up is an error.
            if ours is not None and (ours.wait() > 0 or attempts == ATTEMPTS):
                os.close(lock)
                raise EmbeddedError(f"The embedded servers did not start. {log_tail(layout.keeper_log, log_start)}")
            ours = _spawn_keeper(layout, lock)
            attempts += 1
        elif (ready := state.read(layout)) is not None and _answers(ready, redis):
            if ours is not None:
                for note in ready.notes:
                    print(f"mustit: {note}", file=sys.stderr)
            return ready
        if time.monotonic() > deadline:
            raise EmbeddedError(
                f"The servers of {layout.home} were not ready within {ATTACH_SECONDS} s. "
                + log_tail(layout.keeper_log, log_start)
            )
        time.sleep(locks.POLL_SECONDS)


def _answers(ready: state.State, redis: bool) -> bool:
    if not accepts(ready.sockets / POSTGRES_SOCKET):
        return False
    return not redis or (ready.redis_pid is not None and answers_ping(ready.sockets / REDIS_SOCKET))


def _spawn_keeper(layout: Layout, lock: int) -> subprocess.Popen[bytes]:
    """Start a keeper and pass it the lock, so that two can never start at once."""
    try:
        state.withdraw(layout)
        os.ftruncate(lock, 0)
        # The package may run from a checkout without being installed.
        root = str(Path(__file__).parents[2])
        path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
        with layout.open_log(layout.keeper_log) as log:
            keeper = subprocess.Popen(
                [sys.executable, "-m", "mustit_pipeline.embedded.keeper", str(layout.home), str(lock)],
                cwd="/",
                env={**os.environ, "PYTHONPATH": path},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=(lock,),
            )
    except OSError as error:
        raise EmbeddedError(f"The embedded servers cannot be started: {error}") from error
    finally:
        os.close(lock)
    _keepers.append(keeper)
    return keeper


def _wait_for_stop_if_last(layout: Layout) -> None:
    from mustit_pipeline.embedded.keeper import stop_servers

    deadline = time.monotonic() + RELEASE_SECONDS
    others = 0
    while time.monotonic() < deadline:
        users = locks.try_exclusive(layout.users_lock)
        if users is not None:
            lock = locks.try_exclusive(layout.keeper_lock)
            if lock is not None:
                # The keeper has ended, or was killed and left its servers to the last user.
                try:
                    stop_servers(layout)
                finally:
                    os.close(lock)
                    os.close(users)
                    _collect_keepers()
                return
            os.close(users)
        elif (shared := locks.try_shared(layout.users_lock)) is not None:
            os.close(shared)
            others += 1
            if others == 2:  # once may have been another leaver's look at the lock
                return
        time.sleep(locks.POLL_SECONDS)


def _collect_keepers() -> None:
    _keepers[:] = [keeper for keeper in _keepers if keeper.poll() is None]


def _keeper_pid(layout: Layout) -> int | None:
    try:
        return int(layout.keeper_lock.read_text())
    except (OSError, ValueError):
        return None


def _in_use(layout: Layout) -> bool:
    if not os.path.exists(layout.users_lock):
        return False
    lock = locks.try_exclusive(layout.users_lock)
    if lock is not None:
        os.close(lock)
    return lock is None
