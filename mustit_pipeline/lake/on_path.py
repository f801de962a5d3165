"""The lake on a path: a folder is made beside its place, and takes it in one step."""

import ctypes
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from mustit_pipeline.lake.failures import lake_failures

# At the lake's root and hidden: no pattern or tool that reads an asset's folder sees what is being made.
MAKING = ".making"
# Of the system call renameat2.
AT_FDCWD, RENAME_EXCHANGE = -100, 2


@dataclass(frozen=True, slots=True)
class NewFolder:
    """The new files of a folder, which readers do not see yet."""

    folder: Path
    sizes: dict[str, int] = field(default_factory=dict[str, int])

    @contextmanager
    def file(self, name: str) -> Generator[Path]:
        """The path to write a file to."""
        path = self.folder / name
        with lake_failures(str(path)):
            path.parent.mkdir(parents=True, exist_ok=True)
            yield path
            _sync(path)
            _sync(path.parent)
            self.sizes[name] = path.stat().st_size


@dataclass(frozen=True, slots=True)
class PathLake:
    """Folders of a file system."""

    filesystem: Any
    root: str

    def shown(self, name: str) -> str:
        """The address of a folder or file."""
        return f"{self.root}/{name}"

    @contextmanager
    def replace(self, folder: str) -> Generator[NewFolder]:
        """The new files of a folder; they replace the old ones when the block ends well, and otherwise not."""
        target = Path(self.root) / folder
        making = Path(self.root) / MAKING / folder.replace("/", ".")
        fresh, aside = NewFolder(making / uuid4().hex), making / "aside"
        with lake_failures(str(target)):
            target.parent.mkdir(parents=True, exist_ok=True)
            if aside.exists() and not target.exists():
                # A process was killed between two steps.
                aside.rename(target)
            if making.exists():
                shutil.rmtree(making)
            fresh.folder.mkdir(parents=True)
        try:
            yield fresh
            with lake_failures(str(target)):
                _sync(fresh.folder)
                _publish(fresh.folder, target, aside)
        finally:
            # With what was not published, or what was there before.
            shutil.rmtree(making, ignore_errors=True)


def swap(one: Path, other: Path) -> bool:
    """Exchange two folders in one step; False where the kernel or the file system cannot."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    if rename is None:
        return False
    return rename(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) == 0


def _publish(fresh: Path, target: Path, aside: Path) -> None:
    if not target.exists():
        fresh.rename(target)
    elif not swap(fresh, target):
        # For a moment the folder is not there; after a kill the next write puts it back.
        target.rename(aside)
        fresh.rename(target)
    _sync(target.parent)


def _sync(path: Path) -> None:
    """Write it to the disk: after a power cut no name may be without its content."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
