"""What a worker knows of free agents without asking."""


class FreeAgents:
    """While none was free a moment ago, only one that may have become free since is a reason to ask again."""

    def __init__(self) -> None:
        self.none_until = 0.0
        self.freed = 0
        self._maybe = 0

    def mark_released(self) -> None:
        """A request has ended, or an agent was given back."""
        self.freed += 1
        self._maybe += 1

    def ask(self, wanted: int, now: float) -> int:
        """How many of those that are wanted are worth asking for, which is done now."""
        asked = max(0, wanted if self.none_until <= now else min(wanted, self._maybe))
        self._maybe = max(0, self._maybe - asked)
        return asked

    def mark_exhausted(self, now: float, seconds: float, freed: int) -> None:
        """None for so many seconds, says an answer that cannot know of those freed since there were `freed` of them."""
        until = now + seconds
        self.none_until = until if self.none_until <= now else min(self.none_until, until)
        self._maybe = min(self._maybe, self.freed - freed)

    def blocked(self, now: float) -> float:
        """Seconds until one may be free, unless one is already."""
        return 0.0 if self._maybe else max(0.0, self.none_until - now)
