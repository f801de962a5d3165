"""The one place where the time is read; other code gets it as an argument."""

from datetime import UTC, datetime


def utc_now() -> datetime:
    """The present time, in UTC as it is stored."""
    return datetime.now(UTC)
