"""File locks that the kernel gives back when their holder dies."""

import fcntl
import os
import time
from pathlib import Path

from mustit_pipeline.embedded.errors import EmbeddedError

POLL_SECONDS = 0.02


def try_exclusive(path: Path) -> int | None:
    """The descriptor of the lock if nobody else holds it in any way."""
    return _try(path, fcntl.LOCK_EX)


def try_shared(path: Path) -> int | None:
    """The descriptor of the lock unless somebody holds it exclusively."""
    return _try(path, fcntl.LOCK_SH)


def shared(path: Path, seconds: float) -> int | None:
    """The descriptor of the shared lock, waited for; None when the time is over."""
    deadline = time.monotonic() + seconds
    while (descriptor := try_shared(path)) is None:
        if time.monotonic() > deadline:
            return None
        time.sleep(POLL_SECONDS)
    return descriptor


def is_current(descriptor: int, path: Path) -> bool:
    """Whether the locked file is still the one that others find under its name."""
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
                "Is this MUSTIT_HOME somebody else's? Use the account that made it, or another MUSTIT_HOME."
            ) from error
        try:
            owner = path.parent.stat()
            # Root in somebody's HOME leaves them a lock that they can open.
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
