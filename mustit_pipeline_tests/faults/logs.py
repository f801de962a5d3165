"""What the pipeline logs while it is being broken, kept so that a scenario can read it."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import structlog


@contextmanager
def logging_to(folder: Path) -> Generator[None]:
    """Within, this process logs to a file of its own in there."""
    before = structlog.get_config()
    with (folder / f"{os.getpid()}.log").open("a", encoding="utf-8", buffering=1) as file:
        structlog.configure(
            processors=[
                structlog.processors.add_log_level,
                structlog.processors.format_exc_info,
                structlog.processors.JSONRenderer(ensure_ascii=False),
            ],
            logger_factory=structlog.PrintLoggerFactory(file),
            cache_logger_on_first_use=False,
        )
        try:
            yield
        finally:
            structlog.configure(**before)
