"""File locks that the kernel releases when their holder dies."""

import fcntl
import os
import time
from pathlib import Path

from mustit_pipeline.embedded.errors import EmbeddedError

POLL_SECONDS = 0.02


def try_exclusive(path: Path) -> int | None:
    """The descriptor of the lock, None if another process holds it in any mode."""
    return _try(path, fcntl.LOCK_EX)


def try_shared(path: Path) -> int | None:
    """The descriptor of the lock, None if another process holds it exclusively."""
    return _try(path, fcntl.LOCK_SH)


def shared(path: Path, seconds: float) -> int | None:
    """Wait for the shared lock and return its descriptor; None when the time is over."""
    deadline = time.monotonic() + seconds
    while (descriptor := try_shared(path)) is None:
        if time.monotonic() > deadline:
            return None
        time.sleep(POLL_SECONDS)
    return descriptor


def is_current(descriptor: int, path: Path) -> bool:
    """Whether the locked file is still the one under its name."""
    try:
        here = path.stat()
    except OSError:
        return False
    held = os.fstat(descriptor)
    return (held.st_dev, held.st_ino) == (here.st_dev, here.st_ino)


def _try(path: Path, kind: int) -> int | None:
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise EmbeddedError(
                f"{path} cannot be opened: {error.strerror}. "
                "Does this MUSTIT_HOME belong to another user? Use the account that made it, or another MUSTIT_HOME."
            ) from error
        try:
            owner = path.parent.stat()
            # If root works in a user's HOME, that user must be able to open the lock.
            if os.geteuid() == 0 and os.fstat(descriptor).st_uid != owner.st_uid:
                os.fchown(descriptor, owner.st_uid, owner.st_gid)
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError as error:
            os.close(descriptor)
            raise EmbeddedError(
                f"{path} cannot be locked: {error.strerror}. Put MUSTIT_HOME on a local disk."
            ) from error
        if is_current(descriptor, path):
            return descriptor
        os.close(descriptor)
