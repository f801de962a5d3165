"""An append-only JSON-lines file that survives a kill at any byte."""

import fcntl
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson


class JournalError(Exception):
    """The journal cannot be used; the message names the file and why."""


class Journal:
    """Records in order; each is in the file before its effect is visible."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.count = 0
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._descriptor)
            raise JournalError(
                f"{path} is in use by another running simulator: stop it first, or set MUSTIT_HOME to another folder"
            ) from error

    def replay(self) -> Iterable[dict[str, Any]]:
        """Every whole record; a line torn by a kill is cut off, so that the next record starts cleanly."""
        whole = 0
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    break
                try:
                    record = orjson.loads(line)
                except orjson.JSONDecodeError as error:
                    raise JournalError(f"{self.path} line {number} is damaged: {error}") from error
                whole += len(line)
                self.count += 1
                yield record
        os.ftruncate(self._descriptor, whole)

    def append(self, *records: dict[str, Any]) -> None:
        """Write the records to the operating system: from then on they survive this process."""
        data = b"".join(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE) for record in records)
        before = os.fstat(self._descriptor).st_size
        try:
            written = 0
            while written < len(data):
                written += os.write(self._descriptor, data[written:])
        except OSError:
            # Half a line in the middle of the file would make all that follows unreadable.
            os.ftruncate(self._descriptor, before)
            raise
        self.count += len(records)

    def close(self) -> None:
        """Close the file and release its lock."""
        os.close(self._descriptor)
