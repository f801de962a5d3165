"""The simulation of the recrawl policy runs the policy, keeps to its budget, and shows what a small world can show."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import recrawl, recrawl_plot, recrawl_policies
from benchmarks.recrawl import BUDGETS, OURS, POLICIES, QUICK, UNIFORM, Recrawl
from benchmarks.recrawl_world import World
from mustit_pipeline.domain.recrawl.choosing import Candidate, Terms, chosen

candidates = st.lists(
    st.builds(
        Candidate,
        st.just(0),
        st.integers(0, 40).map(float),
        st.integers(0, 5).map(float),
        st.sampled_from([0.001, 0.5]),
        st.booleans(),
    ),
    max_size=40,
)
terms = st.builds(
    Terms,
    allowance=st.integers(0, 50),
    price=st.integers(0, 5).map(float),
    kept_age=st.sampled_from([10.0, 24.0, 100.0]),
    promise_broken=st.booleans(),
    look_hours=st.sampled_from([0.5, 3.0]),
    promise_rate=st.sampled_from([0.5, 5.0]),
    min_chance=st.just(0.01),
)


@pytest.fixture(scope="module")
def compared() -> Recrawl:
    return recrawl.run(QUICK)


@given(candidates, terms)
def test_arrays_are_chosen_from_as_the_policy_chooses(of: list[Candidate], on: Terms) -> None:
    numbered = [Candidate(key, one.age, one.value, one.chance, one.believed) for key, one in enumerate(of)]
    order, _ = recrawl_policies.chosen(
        np.array([one.age for one in numbered], float),
        np.array([one.value for one in numbered], float),
        np.array([one.chance for one in numbered], float),
        np.array([one.believed for one in numbered], bool),
        on,
    )
    assert order.tolist() == [choice.key for choice in chosen(numbered, on)]


def test_no_policy_spends_more_than_its_budget(compared: Recrawl) -> None:
    for budget in BUDGETS:
        # What the first hour may spend of the hour before.
        most = budget.requests * (1 + 1 / (24 * QUICK.usual.days))
        for name in POLICIES:
            assert 0 < compared.mean(budget, name).requests_each_day <= most


def test_ours_is_fresher_than_uniform_and_keeps_the_promise_where_there_are_requests_enough(compared: Recrawl) -> None:
    for budget in BUDGETS[:2]:
        ours = compared.mean(budget, OURS)
        assert ours.freshness > compared.mean(budget, UNIFORM).freshness
        assert ours.oldest_age <= budget.max_age


def test_changes_that_the_listing_shows_are_found_by_the_next_look(compared: Recrawl) -> None:
    ours = compared.mean(BUDGETS[0], OURS)
    assert ours.shown_p50 <= ours.look_hours


def test_a_seed_is_a_world() -> None:
    one, same, other = World(QUICK.usual, 1), World(QUICK.usual, 1), World(QUICK.usual, 2)
    assert np.array_equal(one.events.times, same.events.times)
    assert len(one.events.times) != len(other.events.times)


def test_the_results_are_a_table_targets_json_and_a_picture(compared: Recrawl, tmp_path: Path) -> None:
    assert len(compared.table().rows) == len(BUDGETS) * len(POLICIES)
    # Three for each leading budget, one for each other, the promises that can be kept, and the other world.
    assert len({target.name for target in compared.targets()}) == 3 * 3 + 2 + 4 + 4
    assert set(compared.document()) == {"plan", "usual", "others", "told"}
    recrawl_plot.draw(compared, tmp_path / "recrawl.svg")
    picture = (tmp_path / "recrawl.svg").read_text()
    assert "oracle" in picture
    assert all(label in picture for label, _ in recrawl_plot.MEASURES.values())
