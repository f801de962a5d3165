"""The account of the servers: the present one, or an unprivileged one for root, because PostgreSQL refuses root."""

import ctypes
import os
import pwd
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from mustit_pipeline.embedded.binaries import Programs
from mustit_pipeline.embedded.errors import EmbeddedError
from mustit_pipeline.embedded.layout import Layout

NO_USER = 65534
CLONE_NEWUSER = 0x10000000
PR_SET_DUMPABLE = 4


@dataclass(frozen=True)
class Account:
    """The account of the servers, and notes on permissions that were opened for it."""

    uid: int
    gid: int
    notes: list[str] = field(default_factory=list[str])

    @property
    def is_this_one(self) -> bool:
        return self.uid == os.geteuid()

    @property
    def user(self) -> int | None:
        """The uid for a subprocess; None if this process already has it. The same for `group` and `extra_groups`."""
        return None if self.is_this_one else self.uid

    @property
    def group(self) -> int | None:
        return None if self.is_this_one else self.gid

    @property
    def extra_groups(self) -> list[int] | None:
        return None if self.is_this_one else []

    def own(self, path: Path) -> None:
        """Give this account a file or folder."""
        if not self.is_this_one:
            os.chown(path, self.uid, self.gid)

    def take(self, tree: Path) -> None:
        """Take ownership of data that root restored from a copy, and make it private: PostgreSQL requires both."""
        if not self.is_this_one and tree.stat().st_uid == os.geteuid():
            for path in _tree(tree):
                self.own(path)
        tree.chmod(0o700)

    def let_in(self, folder: Path) -> None:
        """Let this account pass through (not list) the folder and all its parents."""
        if self.is_this_one:
            return
        for step in _way(folder):
            found = step.stat()
            if _may_enter(found, self.uid, self.gid):
                continue
            if found.st_uid != os.geteuid():
                raise EmbeddedError(
                    f"The servers run as account {self.uid}, which may not enter {step}; run as its owner instead"
                )
            step.chmod(stat.S_IMODE(found.st_mode) | (stat.S_IXGRP if found.st_gid == self.gid else stat.S_IXOTH))
            self.notes.append(f"opened {step} for passing through (o+x): the servers run as account {self.uid}")

    def let_run(self, programs: Programs) -> None:
        """Make the programs usable for this account if only their owner can use them."""
        if self.is_this_one:
            return
        self.let_in(programs.folder)
        # The whole installation has one umask: checking its top folders saves reading all of it at every start.
        if all(_is_open(path) for path in (*filter(Path.exists, programs.trees), *programs.folder.iterdir())):
            return
        closed = [path for tree in programs.trees if tree.exists() for path in _tree(tree) if not _is_open(path)]
        for path in closed:
            path.chmod(stat.S_IMODE(path.stat().st_mode) | _needed(path))
        self.notes.append(f"made {programs.folder.parent} readable (o+rX): the servers run as account {self.uid}")

    def with_a_name(self) -> Callable[[], None] | None:
        """A function that initdb's process runs first if the uid has no name (as in containers): initdb looks it up."""
        try:
            pwd.getpwuid(self.uid)
        except KeyError:
            return lambda: _enter_unnamed_namespace(self.uid, self.gid)
        return None


def server_account(layout: Layout) -> Account:
    """The account for this home; existing data keeps its owner."""
    if os.geteuid() != 0:
        return Account(os.geteuid(), os.getegid())
    for path in (layout.pgdata, layout.home):
        if path.exists() and path.stat().st_uid != 0:
            return Account(path.stat().st_uid, path.stat().st_gid)
    try:
        entry = pwd.getpwnam("nobody")
        uid, gid = entry.pw_uid, entry.pw_gid
    except KeyError:
        uid, gid = NO_USER, NO_USER
    for step in _way(layout.home):
        found = step.stat()
        # A private folder of a user: only that user's account can pass without a change of the folder.
        if found.st_uid != 0 and not _may_enter(found, uid, gid):
            return Account(found.st_uid, found.st_gid)
    return Account(uid, gid)


def _enter_unnamed_namespace(uid: int, gid: int) -> None:
    """Enter a user namespace in which this process appears as the unprivileged account; files keep its real uid."""
    # Where that is forbidden, initdb reports the missing name itself.
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
        if libc.unshare(CLONE_NEWUSER) == 0:
            for name, text in (
                ("setgroups", "deny"),
                ("uid_map", f"{NO_USER} {uid} 1"),
                ("gid_map", f"{NO_USER} {gid} 1"),
            ):
                Path("/proc/self", name).write_text(text)


def _way(folder: Path) -> Iterator[Path]:
    yield from (folder, *folder.parents)


def _may_enter(found: os.stat_result, uid: int, gid: int) -> bool:
    if found.st_uid == uid:
        return bool(found.st_mode & stat.S_IXUSR)
    if found.st_gid == gid:
        return bool(found.st_mode & stat.S_IXGRP)
    return bool(found.st_mode & stat.S_IXOTH)


def _tree(root: Path) -> Iterator[Path]:
    yield root
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            if not (path := Path(folder, name)).is_symlink():
                yield path


def _needed(path: Path) -> int:
    mode = path.stat().st_mode
    return stat.S_IROTH | (stat.S_IXOTH if stat.S_ISDIR(mode) or mode & stat.S_IXUSR else 0)


def _is_open(path: Path) -> bool:
    needed = _needed(path)
    return path.stat().st_mode & needed == needed
