"""The rules for agents, from the settings."""

from mustit_pipeline.domain.storm import StormRules
from mustit_pipeline.domain.user_agent import AgentRules
from mustit_pipeline.settings import Settings


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
