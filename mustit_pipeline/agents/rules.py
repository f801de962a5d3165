"""The rules for agents, from the settings."""

from mustit_pipeline.agents.sql.agent_bookings import AgentLimits
from mustit_pipeline.domain.storm import StormRules
from mustit_pipeline.domain.user_agent import AgentRules
from mustit_pipeline.settings import Settings

# How long after its deadline a request may still reach the marketplace.
DELIVERY_SECONDS = 5.0


def agent_rules(settings: Settings) -> AgentRules:
    """The rules for one agent's health and suspension."""
    return AgentRules(
        suspend_seconds=settings.suspend_seconds,
        longest_retry_after_seconds=settings.longest_retry_after_seconds,
    )


def storm_rules(settings: Settings) -> StormRules:
    """The rules for storms of 429s."""
    return StormRules(
        agents=settings.storm_agents,
        urls=settings.storm_urls,
        share=settings.storm_share,
        window_seconds=settings.storm_window_seconds,
        pause_seconds=settings.storm_pause_seconds,
    )


def limits_of(settings: Settings) -> AgentLimits:
    """The limits of each agent."""
    return AgentLimits(settings.requests_per_hour, settings.window_seconds, settings.min_request_gap_seconds)


def hold_of(settings: Settings) -> float:
    """How long a booking may stay unanswered: longer than any request can take."""
    return settings.total_timeout_seconds + DELIVERY_SECONDS
