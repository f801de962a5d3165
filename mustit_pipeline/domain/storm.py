"""When 429s or failures are the host's and not one agent's, and how long all calls then pause."""

import re
from dataclasses import dataclass

from mustit_pipeline.domain import limits

_PRODUCT = re.compile(r"/(?:item|auction_products)/([0-9]+)/")

# Beyond this level every pause is capped already, and a float power would overflow.
_HIGHEST_LEVEL = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """429s: how many, to how many agents, and at the URLs of how many products or pages."""

    answers: int
    agents: int
    urls: int


def product_of(url: str) -> str | None:
    """The product that a URL is about: its detail and its options are one product; None for any other page."""
    found = _PRODUCT.search(url)
    return None if found is None else found[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class StormRules:
    """When 429s are a storm, and the pauses of all calls that follow."""

    agents: int = limits.STORM_AGENTS
    urls: int = limits.STORM_URLS
    share: float = limits.STORM_SHARE
    window_seconds: float = limits.STORM_WINDOW_SECONDS
    pause_seconds: float = limits.STORM_PAUSE_SECONDS
    longest_pause_seconds: float = limits.STORM_LONGEST_PAUSE_SECONDS
    calm_seconds: float = limits.STORM_CALM_SECONDS

    def is_storm(self, recent: Refused, *, answers: int, in_a_row: Refused) -> bool:
        """Whether so many agents were throttled at so many URLs, and so many of the last answers, that it is the host.

        Twice as many agents in a row, and no good answer in between, are enough, however long that took: after a fast
        start the good answers of the last seconds would outnumber every 429 that the pool can get, and where answers
        are few the last seconds never hold enough of them.
        """
        enough = recent.agents >= self.agents and recent.urls >= self.urls
        if enough and recent.answers >= self.share * answers:
            return True
        return in_a_row.agents >= 2 * self.agents and in_a_row.urls >= self.urls

    def is_outage(self, *, agents: int, available: int) -> bool:
        """Whether so many different agents in a row got no token that the host is at fault; one is never enough."""
        return agents >= max(2, min(self.agents, available))

    def next_level(self, level: int, *, last_pause: float, since_pause: float) -> int:
        """The level after a pause: one higher unless the host was calm for long enough since."""
        calm = since_pause >= max(self.calm_seconds, last_pause)
        return 0 if calm else min(level + 1, _HIGHEST_LEVEL)

    def pause(self, level: int, asked: float) -> float:
        """How long all calls pause: doubled with each level, and never less than the host's Retry-After."""
        return max(asked, min(self.longest_pause_seconds, self.pause_seconds * 2.0**level))
