"""The error of the embedded servers, and the end of a log file that explains it."""

from pathlib import Path

from mustit_pipeline.environment_failure import EnvironmentFailure

TAIL_BYTES = 8192
TAIL_LINES = 15


class EmbeddedError(EnvironmentFailure):
    """The embedded servers cannot be used; the message says why."""

    code = "EXTERNAL_EMBEDDED_SERVER"
    topic = "내장 서버를 사용할 수 없습니다"


def log_size(log: Path) -> int:
    """The present size of a log, so that a later tail shows only newer lines."""
    return log.stat().st_size if log.exists() else 0


def log_tail(log: Path, start: int = 0) -> str:
    """A log's name and last lines; `start` leaves out lines of earlier runs."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(min(start, size), size - TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()[-TAIL_LINES:]
    except OSError:
        lines = []
    shown = "\n".join(f"  {line}" for line in lines) or "  (nothing was written)"
    return f"The end of {log}:\n{shown}"
