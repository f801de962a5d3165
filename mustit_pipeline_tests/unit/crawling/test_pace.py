"""How long requests take at best, against agents that are played forward one request at a time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustit_pipeline.agents.sql.agent_bookings import AgentLimits, AgentUse
from mustit_pipeline.crawling.pace import PRECISION_SECONDS, seconds_for

HOUR = AgentLimits(requests=80, window=3600, gap=1)
FIFTY_UNUSED = [AgentUse(0, ())] * 50


def played(agents: list[AgentUse], limits: AgentLimits, requests: int, start: float) -> float:
    """The agent that is free first sends the next request."""
    histories = [list(agent.ends) for agent in agents]

    def free_at(number: int) -> float:
        ends = histories[number]
        rested = ends[-1] + limits.rest if ends else 0.0
        slot = ends[-limits.requests] + limits.window if len(ends) >= limits.requests else 0.0
        return max(start, agents[number].rests, rested, slot)

    sent = 0.0
    for _ in range(requests):
        first = min(range(len(agents)), key=free_at)
        sent = free_at(first)
        histories[first].append(sent)
    return sent


@st.composite
def limits_and_agents(draw: st.DrawFn) -> tuple[AgentLimits, list[AgentUse]]:
    """A few agents that have kept to their limits so far, some of them resting."""
    limits = AgentLimits(
        draw(st.integers(1, 6)), draw(st.sampled_from([10.0, 60.0])), draw(st.sampled_from([0.0, 1.5]))
    )
    agents: list[AgentUse] = []
    for _ in range(draw(st.integers(1, 4))):
        ends = [-draw(st.floats(0, limits.window))]
        for pause in draw(st.lists(st.floats(limits.rest, limits.window), max_size=limits.requests - 1)):
            ends.insert(0, ends[0] - pause)
        used = tuple(end for end in ends if end > -limits.window)
        agents.append(AgentUse(draw(st.sampled_from([0.0, 0.0, 25.0])), draw(st.sampled_from([used, ()]))))
    return limits, agents


@given(limits_and_agents(), st.integers(1, 60), st.sampled_from([0.0, 7.0]))
def test_it_is_what_agents_need_that_send_whenever_they_may(
    ground: tuple[AgentLimits, list[AgentUse]], requests: int, start: float
) -> None:
    limits, agents = ground
    told = seconds_for(agents, limits, requests, start=start)
    assert told == pytest.approx(played(agents, limits, requests, start), abs=2 * PRECISION_SECONDS)


@pytest.mark.parametrize(
    ("used", "ended_ago", "requests", "seconds"),
    [
        (0, 0, 4_000, 79),
        (0, 0, 4_001, 3_600),
        (0, 0, 6_936, 3_658),
        (20, 0, 3_000, 60),
        (20, 600, 3_001, 3_000),
        # A quarter of the window was used 59 minutes ago: no request waits another hour for it.
        (20, 3_540, 3_001, 60),
        (80, 3_000, 100, 601),
        (80, 3_000, 4_100, 4_201),
    ],
)
def test_a_crawl_that_needs_more_than_is_left_of_the_window_waits_for_the_first_slots_that_come_free(
    used: int, ended_ago: float, requests: int, seconds: float
) -> None:
    agents = [AgentUse(0, (-ended_ago,) * used)] * 50
    assert seconds_for(agents, HOUR, requests) == pytest.approx(seconds, abs=1)


def test_a_huge_crawl_costs_no_more_to_judge_than_a_small_one() -> None:
    assert seconds_for(FIFTY_UNUSED, HOUR, 4_000_000) == pytest.approx(999 * 3_600 + 79, abs=1)


def test_nothing_is_sent_without_agents_and_nothing_takes_no_time() -> None:
    assert seconds_for([], HOUR, 1) is None
    assert seconds_for(FIFTY_UNUSED, HOUR, 0) == 0
