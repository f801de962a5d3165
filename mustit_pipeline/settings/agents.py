"""The settings of the user-agent pool: the agents' limits, and the rules for health, storms and the breaker."""

from pydantic import Field
from pydantic_settings import BaseSettings


class AgentSettings(BaseSettings):
    """The settings of the agent pool."""

    requests_per_hour: int = Field(80, ge=1, description="Requests per agent in any window of WINDOW_SECONDS")
    window_seconds: float = Field(3600, gt=0, description="Length of the sliding window")
    min_request_gap_seconds: float = Field(1.0, ge=0, description="Pause between two requests of an agent; 0 = none")
    suspend_seconds: float = Field(3600, gt=0, description="How long a throttled or unwell agent rests")
    longest_retry_after_seconds: float = Field(
        86400,
        gt=0,
        le=30 * 86400,
        description="The most of a Retry-After that is honoured",
    )
    undecided_share: float = Field(
        0.1, ge=0, le=1, description="Most of the pool that rests for 429s that may be their URLs' own; at least one"
    )
    storm_agents: int = Field(5, ge=1, le=10_000, description="So many throttled agents at once mean the host itself")
    storm_urls: int = Field(
        5, ge=1, le=10_000, description="If they were throttled at so many different products or pages"
    )
    storm_share: float = Field(0.5, gt=0, le=1, description="And if they are at least this share of the last answers")
    storm_window_seconds: float = Field(5, gt=0, le=600, description="How far back those answers are counted")
    storm_pause_seconds: float = Field(
        2, gt=0, le=600, description="First pause of all calls; doubled from storm to storm, up to ten minutes"
    )
    breaker_min_available: float = Field(0.2, ge=0, le=1, description="Below this share of AVAILABLE agents calls stop")
    breaker_cooldown_seconds: float = Field(600, gt=0, description="Until an open breaker tries one request")
