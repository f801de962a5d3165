"""However workers interleave, die or come late: no window holds too much, wherever it is placed."""

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mustit_pipeline.agents.limiter import Limiter, Slot
from mustit_pipeline.agents.sql.agent_bookings import AgentLimits
from mustit_pipeline.agents.sql.agents import read_agents
from mustit_pipeline_tests.contract.limiter_counters import EPOCH, START, Counter, counter_of
from mustit_pipeline_tests.integration.agents.servers import (
    most_in_a_window,
    smallest_gap,
)


@pytest.fixture(scope="module", params=["redis", "postgres"])
def counter(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Counter]:
    with counter_of(request.param, tmp_path_factory.mktemp("limiter")) as found:
        yield found


steps = st.lists(
    st.tuples(
        st.sampled_from(["acquire", "acquire", "acquire", "answer", "answer", "die", "withdraw", "jump", "refresh"]),
        st.integers(0, 5),
        st.floats(0.0, 1.0),
    ),
    min_size=20,
    max_size=90,
)


@given(steps=steps, agents=st.integers(1, 6), requests=st.integers(1, 4), gap=st.sampled_from([0.0, 0.7, 2.0]))
@settings(
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
def test_no_interleaving_of_workers_ever_exceeds_a_window(
    counter: Counter, steps: list[tuple[str, int, float]], agents: int, requests: int, gap: float
) -> None:
    """Each booking's request may reach the marketplace at any moment between its booking and its answer or expiry."""
    limits = AgentLimits(requests, 12.0, gap)

    async def scenario(limiter: Limiter) -> None:
        now, revision = 0.0, 10
        in_flight: list[tuple[Slot, float]] = []
        arrivals: dict[UUID, list[float]] = defaultdict(list)
        for action, which, share in steps:
            now += 0.01 + share
            if action == "acquire":
                answer = await limiter.acquire(EPOCH, 4.0, now=START + now)
                if isinstance(answer, Slot):
                    in_flight.append((answer, now))
                elif which == 0 and answer.seconds is not None and math.isfinite(answer.seconds):
                    now += answer.seconds
            elif action == "jump":
                now += 6.0 * share
            elif action == "refresh":
                revision += 1
                with counter.database.reading() as connection:
                    rows = [replace(row, revision=revision, health=50 + which) for row in read_agents(connection)]
                await limiter.publish(EPOCH, rows, now=START + now)
            elif in_flight:
                slot, since = in_flight.pop(which % len(in_flight))
                if action == "answer":
                    # A worker keeps its deadline: the request arrives before the hold ends, the answer may be later.
                    arrivals[slot.agent_id].append(since + share * (min(now, since + 4.0) - since))
                    await limiter.settle(EPOCH, slot, now=START + now)
                elif action == "die":
                    arrivals[slot.agent_id].append(since + share * 4.0)
                else:
                    await limiter.withdraw(EPOCH, slot, share, now=START + now)
        for slot, since in in_flight:
            arrivals[slot.agent_id].append(since + 4.0)
        for moments in arrivals.values():
            assert most_in_a_window(moments, limits.window - 1e-4) <= limits.requests
            assert smallest_gap(moments) >= limits.gap - 1e-4

    counter.run(limits, agents, scenario)
