"""When it is the host that throttles or is unwell, not one agent, and how long a throttling one is left alone."""

from dataclasses import dataclass

from mustit_pipeline.domain import limits

# Beyond this every pause has long been the longest, and a float power would overflow.
_HIGHEST_LEVEL = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class StormRules:
    """What a storm of 429s is, and the pauses of all calls that follow."""

    agents: int = limits.STORM_AGENTS
    share: float = limits.STORM_SHARE
    window_seconds: float = limits.STORM_WINDOW_SECONDS
    pause_seconds: float = limits.STORM_PAUSE_SECONDS
    longest_pause_seconds: float = limits.STORM_LONGEST_PAUSE_SECONDS
    calm_seconds: float = limits.STORM_CALM_SECONDS

    def is_storm(self, *, agents: int, throttled: int, answers: int, in_a_row: int = 0) -> bool:
        """Whether so many different agents were throttled, and so many of the last answers, that it is the host.

        Twice as many agents in a row, and no good answer in between, are enough, however long that took: after a fast
        start the good answers of the last seconds would outnumber every 429 that the pool can get, and where answers
        are few the last seconds never hold enough of them. Agent by agent the pool would be burnt.
        """
        return (agents >= self.agents and throttled >= self.share * answers) or in_a_row >= 2 * self.agents

    def is_outage(self, *, agents: int, available: int) -> bool:
        """Whether so many different agents got no token in a row that it is the host; one alone never tells."""
        return agents >= max(2, min(self.agents, available))

    def next_level(self, level: int, *, last_pause: float, since_pause: float) -> int:
        """The level after a pause: one higher unless the host was calm for long enough since."""
        calm = since_pause >= max(self.calm_seconds, last_pause)
        return 0 if calm else min(level + 1, _HIGHEST_LEVEL)

    def pause(self, level: int, asked: float) -> float:
        """How long all calls wait: doubled from level to level, and never less than the host asks for."""
        return max(asked, min(self.longest_pause_seconds, self.pause_seconds * 2.0**level))
