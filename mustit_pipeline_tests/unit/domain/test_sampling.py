"""What a sample says of the whole."""

import pytest

from mustit_pipeline.domain.sampling import wilson_interval


@pytest.mark.parametrize(
    ("hits", "number", "low", "high"),
    # The published values of the score interval, and its ends.
    [(0, 0, 0, 1), (0, 10, 0, 0.2775), (10, 10, 0.7225, 1), (1, 10, 0.0179, 0.4042), (10, 100, 0.0552, 0.1744)],
)
def test_the_interval_is_wilsons(hits: int, number: int, low: float, high: float) -> None:
    assert wilson_interval(hits, number) == pytest.approx((low, high), abs=1e-4)
