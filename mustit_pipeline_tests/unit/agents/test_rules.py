"""The settings' defaults are the specified numbers, and every one of them reaches the domain."""

from typing import Any

import pytest

from mustit_pipeline.agents.rules import agent_rules, storm_rules
from mustit_pipeline.domain import limits
from mustit_pipeline.domain.storm import StormRules
from mustit_pipeline.domain.user_agent import AgentRules
from mustit_pipeline.settings import Settings

DEFAULTS: dict[str, Any] = {name: field.default for name, field in Settings.model_fields.items()}


def test_the_rules_of_untouched_settings_are_the_specified_ones() -> None:
    untouched = Settings.model_construct(None, **DEFAULTS)
    assert agent_rules(untouched) == AgentRules()
    assert storm_rules(untouched) == StormRules()


@pytest.mark.parametrize(
    "name", ["task_max_retries", "task_max_releases", "raw_max_attempts", "outbox_max_retries", "deletion_sweeps"]
)
def test_a_setting_and_the_domain_have_the_same_default(name: str) -> None:
    assert DEFAULTS[name] == getattr(limits, name.upper())


def test_what_can_be_set_of_the_rules_reaches_them() -> None:
    numbers = {name: default for name, default in DEFAULTS.items() if isinstance(default, int | float)}
    doubled = Settings.model_construct(None, **(DEFAULTS | {name: 2 * number for name, number in numbers.items()}))
    assert agent_rules(doubled) == AgentRules(suspend_seconds=7200, longest_retry_after_seconds=48 * 3600)
    assert storm_rules(doubled) == StormRules(agents=10, urls=10, share=1.0, window_seconds=10, pause_seconds=4)
