"""The price of a request, which is the same for the whole pool, and the light crawls that are worth it."""

import math

from mustit_pipeline.domain.recrawl.arithmetic import FLOATS, MOST_EXPECTED, Arithmetic, clamped
from mustit_pipeline.domain.recrawl.worth import gain

PRICES = LOWEST_PRICE, HIGHEST_PRICE = 1e-6, 1e4
PRICE_GAIN = 0.1
MOST_EXCESS = 10.0
LEAST_LOOK_HOURS = 1.0
# Listing pages may take so much of a seller's requests even where the listing shows nothing of worth.
LOOK_SHARE = 0.05


def moved_price(price: float, wanted: float, affordable: float, hours: float) -> float:
    """The pool's price after some hours in which crawls planned so many requests and could afford so many."""
    excess = clamped(wanted / max(affordable, 1.0) - 1.0, -1.0, MOST_EXCESS, FLOATS)
    return clamped(price * math.exp(PRICE_GAIN * min(hours, 24.0) * excess), LOWEST_PRICE, HIGHEST_PRICE, FLOATS)


def sweep_value(sources: float, rate: float, shown: float, hours: float, arithmetic: Arithmetic = FLOATS) -> float:
    """What a sweep brings after so many hours for the sources of one kind, in the measure of `value`."""
    visible = shown * rate
    return sources / visible * gain(arithmetic.minimum(visible * hours, MOST_EXPECTED), arithmetic)


def light_crawl_value(swept: float, pages: float, hours: float, requests_per_hour: float, price: float) -> float:
    """What a light crawl is worth per listing page; at least the price once pages are few beside what is fetched.

    `swept` is the value of the sweep over all kinds of sources, `requests_per_hour` the seller's share of the pool.
    """
    return swept / pages + price * LOOK_SHARE * requests_per_hour * hours / pages


def is_light_crawl_due(worth: float, price: float, hours: float) -> bool:
    """Whether a seller's light crawl is worth its requests; the one of most worth goes first."""
    return hours >= LEAST_LOOK_HOURS and worth >= price
