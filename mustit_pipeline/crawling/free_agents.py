"""A worker's knowledge of free agents, so that it does not ask the limiter in vain."""


class FreeAgents:
    """After "no agent is free", the worker asks again only for agents that may have been released since."""

    def __init__(self) -> None:
        self.none_until = 0.0
        self.freed = 0
        self._maybe = 0

    def mark_released(self) -> None:
        """A request has ended, or an agent was given back."""
        self.freed += 1
        self._maybe += 1

    def ask(self, wanted: int, now: float) -> int:
        """How many of the wanted agents are worth asking for; counts them as asked."""
        asked = max(0, wanted if self.none_until <= now else min(wanted, self._maybe))
        self._maybe = max(0, self._maybe - asked)
        return asked

    def mark_exhausted(self, now: float, seconds: float, freed: int) -> None:
        """None for so many seconds, says an answer that cannot know of those freed since there were `freed` of them."""
        until = now + seconds
        self.none_until = until if self.none_until <= now else min(self.none_until, until)
        self._maybe = min(self._maybe, self.freed - freed)

    def blocked(self, now: float) -> float:
        """Seconds until an agent may be free; 0 if one may be free now."""
        return 0.0 if self._maybe else max(0.0, self.none_until - now)
