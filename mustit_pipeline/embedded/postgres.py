"""The embedded PostgreSQL: one cluster in HOME/pgdata, reached through a socket only."""

import os
import secrets
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from mustit_pipeline.embedded import processes
from mustit_pipeline.embedded.account import Account
from mustit_pipeline.embedded.binaries import postgres_programs
from mustit_pipeline.embedded.errors import EmbeddedError, log_size, log_tail
from mustit_pipeline.embedded.layout import POSTGRES_SOCKET, Layout
from mustit_pipeline.embedded.server_process import ENVIRONMENT, ServerProcess
from mustit_pipeline.embedded.sockets import accepts

SUPERUSER = "postgres"
DATABASE = "mustit"
DAGSTER_DATABASE = "mustit_dagster"
INIT_SECONDS = 120
# Recovery after a power cut replays up to max_wal_size; that is no failed start.
START_SECONDS = 120
STOP_STEPS = [(signal.SIGINT, 30.0), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0)]
SETTINGS = {
    "listen_addresses": "",
    "port": "5432",
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "fsync": "on",
    "synchronous_commit": "on",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
    # Parallel plans need shared memory beyond the 64 MB that containers have.
    "max_parallel_workers_per_gather": "0",
    "max_parallel_maintenance_workers": "0",
}


@dataclass(frozen=True)
class PidFile:
    """The content of postmaster.pid."""

    pid: int
    socket_folder: str
    ready: bool

    @classmethod
    def read(cls, pgdata: Path) -> "PidFile | None":
        """The file's content; None if it is missing or half written."""
        try:
            lines = (pgdata / "postmaster.pid").read_text().splitlines()
            return cls(
                int(lines[0]), lines[4] if len(lines) > 4 else "", len(lines) > 7 and lines[7].strip() == "ready"
            )
        except (OSError, ValueError, IndexError):
            return None


class Postgres:
    """The server of one home, started here or found running."""

    name = "PostgreSQL"

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._pgdata = layout.pgdata
        self._sockets: Path | None = None
        self.process = ServerProcess("postgres", layout.pgdata)

    def usable(self) -> bool:
        """Whether the server runs and its socket exists."""
        return self.process.alive() and self._sockets is not None and (self._sockets / POSTGRES_SOCKET).exists()

    def running(self) -> psutil.Process | None:
        """The running postmaster of this data folder, if any."""
        found = PidFile.read(self._pgdata)
        return None if found is None else processes.server(found.pid, "postgres", self._pgdata)

    def start(self, account: Account, sockets: Path) -> str:
        """Adopt a running server or start one, with both databases; returns which."""
        self._sockets = sockets
        found = self.running()
        if found is not None and self._adopt(found, sockets):
            done = "found running"
        else:
            self.stop()
            if self._pgdata.exists():
                account.take(self._pgdata)
            else:
                self._initialise(account)
            self._spawn(account, sockets)
            done = "started"
        self._make_databases(sockets)
        return done

    def stop(self) -> None:
        """Stop the server of this data folder and remove the files that a killed server leaves."""
        self.process.end(self.running(), STOP_STEPS)
        # PostgreSQL believes any live pid in this file, even one of another program.
        (self._pgdata / "postmaster.pid").unlink(missing_ok=True)

    def _adopt(self, found: psutil.Process, sockets: Path) -> bool:
        self.process.adopt(found)
        try:
            ready = self._wait_until_ready(log_size(self._layout.postgres_log))
        except EmbeddedError:
            return False
        return ready.socket_folder == str(sockets) and accepts(sockets / POSTGRES_SOCKET)

    def _initialise(self, account: Account) -> None:
        """Create the cluster in a temporary folder and rename it: a kill leaves no partial cluster."""
        for left in self._layout.home.glob("pgdata.new-*"):
            _end_orphans(left)
            shutil.rmtree(left, ignore_errors=True)
        fresh = self._layout.home / f"pgdata.new-{secrets.token_hex(4)}"
        fresh.mkdir(mode=0o700)
        account.own(fresh)
        command = [postgres_programs().program("initdb"), "-D", str(fresh), "-U", SUPERUSER, "--encoding=UTF8"]
        command += ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--no-instructions"]
        command += ["--auth-local=trust", "--auth-host=reject"]
        try:
            done = subprocess.run(
                command,
                cwd=fresh,
                env=ENVIRONMENT,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=INIT_SECONDS,
                check=False,
                preexec_fn=account.with_a_name(),
                user=account.user,
                group=account.group,
                extra_groups=account.extra_groups,
            )
            if done.returncode != 0:
                text = (done.stderr or done.stdout).decode(errors="replace").strip()
                raise EmbeddedError(f"PostgreSQL could not make its data folder in {self._layout.home}: {text}")
            fresh.rename(self._pgdata)
        except (OSError, subprocess.SubprocessError) as error:
            raise EmbeddedError(f"PostgreSQL could not make its data folder: {error}") from error
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
        home = os.open(self._layout.home, os.O_RDONLY)
        os.fsync(home)
        os.close(home)

    def _spawn(self, account: Account, sockets: Path) -> None:
        for name in (POSTGRES_SOCKET, POSTGRES_SOCKET + ".lock"):
            (sockets / name).unlink(missing_ok=True)
        command = [postgres_programs().program("postgres"), "-D", str(self._pgdata)]
        for name, value in (*SETTINGS.items(), ("unix_socket_directories", str(sockets))):
            command += ["-c", f"{name}={value}"]
        log_start = log_size(self._layout.postgres_log)
        with self._layout.open_log(self._layout.postgres_log) as log:
            self.process.spawn(command, log, account)
        self._wait_until_ready(log_start)

    def _wait_until_ready(self, log_start: int) -> PidFile:
        deadline = time.monotonic() + START_SECONDS
        while True:
            found = PidFile.read(self._pgdata)
            if found and found.ready and found.pid == self.process.pid:
                return found
            log = self._layout.postgres_log
            if not self.process.alive():
                raise EmbeddedError(f"PostgreSQL did not start. {log_tail(log, log_start)}")
            if time.monotonic() > deadline:
                raise EmbeddedError(f"PostgreSQL was not ready within {START_SECONDS} s. {log_tail(log, log_start)}")
            time.sleep(processes.POLL_SECONDS)

    def _make_databases(self, sockets: Path) -> None:
        there = self._sql(sockets, "SELECT datname FROM pg_database").split()
        for database in (DATABASE, DAGSTER_DATABASE):
            if database not in there:
                self._sql(sockets, f"CREATE DATABASE {database}")

    def _sql(self, sockets: Path, statement: str) -> str:
        # psql starts four times faster than a driver is imported.
        command = [postgres_programs().program("psql"), "-X", "-w", "-h", str(sockets), "-p", "5432", "-U", SUPERUSER]
        command += ["-d", "postgres", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", statement]
        done = subprocess.run(
            command, env=ENVIRONMENT, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        if done.returncode != 0:
            text = done.stderr.decode(errors="replace").strip()
            raise EmbeddedError(f"PostgreSQL refused `{statement}`: {text}. {log_tail(self._layout.postgres_log)}")
        return done.stdout.decode()


def _end_orphans(folder: Path) -> None:
    """End an initdb that has outlived its keeper and would go on writing there."""
    orphans = [
        process for process in psutil.process_iter(["cmdline"]) if str(folder) in (process.info["cmdline"] or ())
    ]
    for orphan in orphans:
        with suppress(psutil.NoSuchProcess):
            orphan.kill()
    psutil.wait_procs(orphans, timeout=10)
