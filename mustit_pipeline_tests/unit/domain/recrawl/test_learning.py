"""What fetches teach: rates, and how far a listing can be trusted."""

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustit_pipeline.domain.recrawl.learning import (
    HALF_LIFE_HOURS,
    HIGHEST_FALSE_RATE,
    HIGHEST_RATE,
    HIGHEST_SHOWN,
    LOWEST_FALSE_RATE,
    LOWEST_RATE,
    LOWEST_SHOWN,
    Evidence,
    SellerEvidence,
    fetched_evidence,
    kept_share,
    learnt,
    learnt_of_seller,
    listing,
    seller_rate,
    source_rate,
)
from mustit_pipeline.domain.recrawl.worth import Listing, Source
from mustit_pipeline_tests.unit.domain.recrawl.strategies import TRUSTED, listings, rates, sources


def test_what_the_other_source_may_have_caused_is_hardly_counted_as_a_false_signal() -> None:
    alone = Source(rate=0.01, age=1, signals=1)
    shared = replace(alone, other_shown_rate=0.1)
    assert fetched_evidence(alone, TRUSTED, 0.0).false_signals == 1
    assert fetched_evidence(shared, TRUSTED, 0.0).false_signals < 0.001


@given(sources, listings, st.sampled_from([0.0, 1.0]))
def test_a_fetch_teaches_finite_numbers(source: Source, seen: Listing, changed: float) -> None:
    said = fetched_evidence(source, seen, changed)
    numbers = (said.shown_changes, said.changes, said.false_signals, said.hours)
    assert all(math.isfinite(number) and number >= 0 for number in numbers)
    assert said.shown_changes <= said.changes
    assert said.changes >= changed * (1 - 1e-9)
    assert changed or said.changes == 0


@given(st.floats(0, 1e9), st.floats(0, 1e9), rates)
def test_estimates_stay_within_their_limits(changes: float, hours: float, prior: float) -> None:
    rate = source_rate(Evidence(changes, hours), prior)
    assert LOWEST_RATE <= rate <= HIGHEST_RATE
    seen = listing(SellerEvidence(changes, hours, changes, changes, changes, changes, changes))
    assert LOWEST_SHOWN <= seen.shown <= HIGHEST_SHOWN
    assert LOWEST_FALSE_RATE <= seen.false_rate <= HIGHEST_FALSE_RATE


def test_in_a_sellers_first_days_a_source_changes_once_in_ten_days_and_the_listing_shows_half_of_it() -> None:
    first = SellerEvidence()
    assert source_rate(Evidence(), seller_rate(first)) == pytest.approx(1 / 240)
    assert listing(first).shown == 0.5


def test_half_of_the_evidence_is_forgotten_after_its_half_life() -> None:
    assert kept_share(HALF_LIFE_HOURS) == pytest.approx(0.5)
    assert kept_share(0) == 1
    assert kept_share(1e9) > 0


@pytest.mark.parametrize("rate", [0.002, 0.02, 0.2])
def test_a_change_rate_is_learnt_from_fetches_that_say_only_changed_or_not(rate: float) -> None:
    chance = random.Random(7)
    seen = listing(SellerEvidence())
    seen = replace(seen, shown=LOWEST_SHOWN)
    evidence = Evidence()
    for _ in range(2000):
        age = chance.uniform(0.2, 2) / rate
        believed = source_rate(evidence, 0.01)
        changed = float(chance.random() < 1 - math.exp(-rate * age))
        said = fetched_evidence(Source(believed, age, 0), seen, changed)
        evidence = learnt(evidence, said, kept=0.999)
    assert source_rate(evidence, 0.01) == pytest.approx(rate, rel=0.15)


@pytest.mark.parametrize(("shown", "false_rate"), [(0.9, 0.0005), (0.5, 0.002), (0.1, 0.005), (0.1, 0.02), (0.0, 0.05)])
def test_a_listing_is_learnt_from_what_fetches_found(shown: float, false_rate: float) -> None:
    """200 sources are fetched at each signal, seen at hourly looks, and every two days in any case."""
    chance = random.Random(5)
    rate, total, evidence = 0.02, SellerEvidence(), [Evidence()] * 200
    age, signals, stale = [0.0] * 200, [0] * 200, [False] * 200
    for _hour in range(600):
        seen, prior = listing(total), seller_rate(total)
        for one in range(200):
            age[one] += 1
            visible = chance.random() < rate * shown
            stale[one] |= visible or chance.random() < rate * (1 - shown)
            signals[one] += visible or chance.random() < false_rate
            if not signals[one] and age[one] < 48:
                continue
            source = Source(source_rate(evidence[one], prior), age[one], signals[one])
            said = fetched_evidence(source, seen, float(stale[one]))
            evidence[one] = learnt(evidence[one], said, 1.0)
            total = learnt_of_seller(total, said, 1.0)
            age[one], signals[one], stale[one] = 0.0, 0, False
    found = listing(total)
    assert seller_rate(total) == pytest.approx(rate, rel=0.2)
    assert found.shown == pytest.approx(shown, abs=0.25)
    assert found.false_rate == pytest.approx(false_rate, rel=0.3)
