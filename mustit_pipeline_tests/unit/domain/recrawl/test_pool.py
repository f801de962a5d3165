"""The pool's price, and when a light crawl is worth it."""

from hypothesis import given
from hypothesis import strategies as st

from mustit_pipeline.domain.recrawl.pool import (
    HIGHEST_PRICE,
    LOWEST_PRICE,
    is_light_crawl_due,
    light_crawl_value,
    moved_price,
    sweep_value,
)
from mustit_pipeline_tests.unit.domain.recrawl.strategies import ages, rates


def test_the_price_rises_with_demand_falls_without_it_and_stays_within_limits() -> None:
    assert moved_price(1, 20, 10, 1) > 1 > moved_price(1, 5, 10, 1)
    assert moved_price(1, 10, 10, 1) == 1
    assert moved_price(HIGHEST_PRICE, 1e9, 0, 1e9) == HIGHEST_PRICE
    assert moved_price(LOWEST_PRICE, 0, 1e9, 1e9) == LOWEST_PRICE


@given(st.floats(1, 1e6), rates, st.floats(0.001, 0.98), ages, ages)
def test_a_sweep_is_worth_more_the_later_it_comes(
    sources: float, rate: float, shown: float, hours: float, more: float
) -> None:
    now = sweep_value(sources, rate, shown, hours)
    assert sweep_value(sources, rate, shown, hours + more) >= now * (1 - 1e-9)


def test_a_listing_that_shows_more_is_swept_sooner() -> None:
    blind, clear = (sweep_value(500, 0.01, shown, 2) for shown in (0.01, 0.8))
    assert clear > 10 * blind
    assert is_light_crawl_due(light_crawl_value(clear, 1, 2, 5, 1.5), 1.5, 2)
    assert not is_light_crawl_due(light_crawl_value(blind, 1, 2, 5, 1.5), 1.5, 2)
    assert not is_light_crawl_due(1e9, 1.5, 0.5)
