"""How long a throttling host is left alone."""

from datetime import UTC, datetime, timedelta

import pytest

from mustit_pipeline.agents.builtin import BUILTIN, DESKTOP, MOBILE, TABLET
from mustit_pipeline.agents.judgement import next_pause
from mustit_pipeline.agents.roster import circuit_of
from mustit_pipeline.agents.sql.agent_pool import PoolRow
from mustit_pipeline.domain.storm import StormRules

RULES = StormRules()
NOW = datetime(2026, 11, 16, 3, tzinfo=UTC)


def pool(paused_until: datetime | None, level: int = 0, seconds: int = 0) -> PoolRow:
    return PoolRow(NOW, "postgres", 0, None, None, paused_until, seconds, level, None, None, None)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def test_the_first_storm_pauses_the_host_for_two_seconds() -> None:
    assert next_pause(RULES, pool(None), 0.0) == (0, 2.0)


@pytest.mark.parametrize(("level", "seconds"), [(0, 4.0), (1, 8.0), (7, 512.0), (8, 600.0), (15, 600.0)])
def test_each_storm_right_after_a_pause_doubles_it_up_to_ten_minutes(level: int, seconds: float) -> None:
    assert next_pause(RULES, pool(ago(1), level, 2), 0.0) == (level + 1, seconds)


def test_a_longer_retry_after_wins() -> None:
    assert next_pause(RULES, pool(None), 900.0) == (0, 900.0)
    assert next_pause(RULES, pool(ago(1), 3), 5.0) == (4, 32.0)


def test_a_host_that_was_calm_starts_small_again() -> None:
    assert next_pause(RULES, pool(ago(RULES.calm_seconds + 1), 5, 10), 0.0) == (0, 2.0)
    assert next_pause(RULES, pool(ago(RULES.calm_seconds + 1), 5, 600), 0.0)[0] == 6


def test_the_circuit_is_half_open_once_its_time_is_over() -> None:
    assert circuit_of(None, NOW) == "closed"
    assert circuit_of(NOW + timedelta(seconds=1), NOW) == "open"
    assert circuit_of(NOW, NOW) == "half-open"


def test_there_are_fifty_different_built_in_agents_of_every_kind() -> None:
    assert len(set(BUILTIN)) == len(BUILTIN) == 50
    assert len(MOBILE) > len(TABLET) > 0
    assert len(DESKTOP) > 0
    assert all(line.isascii() and line.startswith("Mozilla/5.0 (") for line in BUILTIN)
