"""The one place where the time is read; everybody below is told it."""

from datetime import UTC, datetime


def utc_now() -> datetime:
    """The present moment, as it is stored."""
    return datetime.now(UTC)
