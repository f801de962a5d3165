"""The files of the embedded servers under HOME, and the folder of their sockets."""

import hashlib
import os
import re
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from mustit_pipeline.embedded.errors import EmbeddedError

POSTGRES_SOCKET = ".s.PGSQL.5432"
REDIS_SOCKET = "redis.sock"
# sun_path holds 104 bytes on macOS and 108 on Linux, the closing zero included.
SOCKET_BYTES = 100
# A comma separates hosts for libpq and folders for PostgreSQL, and a percent sign is special in Alembic's config: a
# path of plain characters needs no quoting anywhere.
PLAIN_PATH = re.compile(r"[A-Za-z0-9/._-]+")
LOG_BYTES = 20 * 1024 * 1024


@dataclass(frozen=True)
class Layout:
    """The files of one HOME."""

    home: Path

    @classmethod
    def of(cls, home: Path) -> "Layout":
        """The layout of a home; its real path, so that a link to it is the same home."""
        return cls(Path(os.path.realpath(home.expanduser())))

    @property
    def run(self) -> Path:
        return self.home / "run"

    @property
    def logs(self) -> Path:
        return self.home / "logs"

    @property
    def users_lock(self) -> Path:
        """Held shared by every user for its lifetime; if it can be taken exclusively, no user is left."""
        return self.run / "users.lock"

    @property
    def keeper_lock(self) -> Path:
        """Held exclusively by the keeper for its lifetime; contains its pid."""
        return self.run / "keeper.lock"

    @property
    def state(self) -> Path:
        """The keeper's running servers; the file exists only while they are ready."""
        return self.run / "servers.json"

    @property
    def redis_wanted(self) -> Path:
        """Exists once a user asked for Redis."""
        return self.run / "redis.wanted"

    @property
    def keeper_log(self) -> Path:
        return self.logs / "keeper.log"

    @property
    def postgres_log(self) -> Path:
        return self.logs / "postgres.log"

    @property
    def redis_log(self) -> Path:
        return self.logs / "redis.log"

    @property
    def pgdata(self) -> Path:
        return self.home / "pgdata"

    @property
    def redis_data(self) -> Path:
        return self.home / "redis"

    def make_folders(self) -> None:
        """Create HOME and the folders that every user needs."""
        try:
            self.home.mkdir(parents=True, exist_ok=True)
            # The servers' account passes through `run` to its sockets, which have their own private folder.
            for folder, mode in ((self.run, 0o711), (self.logs, 0o700)):
                if not folder.is_dir():
                    folder.mkdir(exist_ok=True)
                    folder.chmod(mode)
                    self.give_to_home_owner(folder)
        except OSError as error:
            raise EmbeddedError(f"{self.home} cannot be used as MUSTIT_HOME: {error}") from error

    def give_to_home_owner(self, path: Path) -> None:
        """If root works in a user's HOME, give the file to that user."""
        if os.geteuid() == 0:
            owner = self.home.stat()
            os.chown(path, owner.st_uid, owner.st_gid)

    def open_log(self, log: Path) -> BinaryIO:
        """A log opened for appending; a big one becomes `.1` first."""
        if log.exists() and log.stat().st_size > LOG_BYTES:
            log.replace(log.with_name(log.name + ".1"))
        fresh = not log.exists()
        file = log.open("ab")
        if fresh:
            log.chmod(0o600)
            self.give_to_home_owner(log)
        return file

    def socket_folder(self) -> Path:
        """HOME/run/s, or a short temporary folder if that path does not suit a socket."""
        inside = self.run / "s"
        if _suits_sockets(inside):
            return inside
        name = f"mustit-{os.geteuid()}-{hashlib.sha256(os.fsencode(self.home)).hexdigest()[:12]}"
        for base in (tempfile.gettempdir(), "/tmp", "/var/tmp"):  # a TMPDIR may be as unsuitable as HOME
            folder = Path(os.path.realpath(base)) / name
            if folder.parent.is_dir() and _suits_sockets(folder):
                return folder
        raise EmbeddedError(f"No folder for the sockets: {inside} is too long and so is {tempfile.gettempdir()}")

    def make_socket_folder(self, owner: tuple[int, int]) -> Path:
        """The folder of the sockets, which only its owner (uid, gid) can enter: it is the only access control."""
        folder = self.socket_folder()
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            found = folder.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (os.geteuid(), owner[0]):
                raise EmbeddedError(f"{folder} belongs to another user; remove it, or set TMPDIR or MUSTIT_HOME")
            if (found.st_uid, found.st_gid) != owner and os.geteuid() == 0:
                os.chown(folder, *owner, follow_symlinks=False)
            folder.chmod(0o700)
        except OSError as error:
            raise EmbeddedError(f"{folder} cannot be used for the sockets: {error}") from error
        return folder


def _suits_sockets(folder: Path) -> bool:
    longest = folder / POSTGRES_SOCKET
    return PLAIN_PATH.fullmatch(str(folder)) is not None and len(os.fsencode(longest)) <= SOCKET_BYTES
