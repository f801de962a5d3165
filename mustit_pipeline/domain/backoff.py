"""Whether there is a next try, and how long to wait before it."""


class Tries:
    """The tries at one call that is not a task: at most `limit`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.failures = 0

    def failed(self) -> None:
        """Count a failed try."""
        self.failures += 1

    def can_retry(self) -> bool:
        """Whether another try is allowed."""
        return self.failures < self._limit


def backoff_seconds(attempt: int, base: float, cap: float, jitter: float) -> float:
    """The pause after failed attempt 1, 2, …: base doubled each time up to cap, shortened by up to half by jitter."""
    if attempt < 1:
        raise ValueError(f"attempts are counted from 1, not {attempt}")
    if not 0 <= jitter < 1:
        raise ValueError(f"jitter lies in [0, 1), not {jitter}")
    # Beyond 2^60 the cap has long been reached, and a float power would overflow.
    return min(cap, base * 2.0 ** min(attempt - 1, 60)) * (1 - jitter / 2)
