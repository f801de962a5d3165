"""Sources, listings and rates for property tests."""

from typing import cast

import numpy as np
from hypothesis import strategies as st

from mustit_pipeline.domain.recrawl.arithmetic import Arithmetic
from mustit_pipeline.domain.recrawl.learning import (
    HIGHEST_FALSE_RATE,
    HIGHEST_RATE,
    HIGHEST_SHOWN,
    LOWEST_FALSE_RATE,
    LOWEST_RATE,
    LOWEST_SHOWN,
)
from mustit_pipeline.domain.recrawl.worth import Listing, Source

NUMPY = cast(Arithmetic, np)
ages = st.floats(0, 1e6)
counts = st.integers(0, 1000)
rates = st.floats(LOWEST_RATE, HIGHEST_RATE)
weights = st.floats(0.01, 100)
listings = st.builds(
    Listing,
    st.floats(LOWEST_SHOWN, HIGHEST_SHOWN),
    st.floats(LOWEST_FALSE_RATE, HIGHEST_FALSE_RATE),
)
sources = st.builds(Source, rates, ages, counts, st.floats(0, HIGHEST_RATE))
TRUSTED = Listing(shown=0.5, false_rate=1e-5)
