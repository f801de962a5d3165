"""How long fetches took: P95 by hour and over a span, from the buckets that workers write."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from operator import add

from sqlalchemy import Connection

from mustit_pipeline.crawling.fetching import FetchOutcome
from mustit_pipeline.tallies.histogram import Histogram
from mustit_pipeline.tallies.sql import tallies
from mustit_pipeline.tallies.sql.tallies import Labels, Subject

SHARE = 0.95


@dataclass(frozen=True, slots=True)
class FetchTimes:
    """The fetches of a span: how many, and the seconds that 95 % stayed within; None without any."""

    number: int
    p95: float | None
    by_hour: dict[datetime, float]


def fetch_times(connection: Connection, since: datetime, until: datetime) -> FetchTimes:
    """Of the whole hours that lie in a span, and of the one in which it begins."""
    first = since.replace(minute=0, second=0, microsecond=0)
    hours = {
        hour: _together(of_hour.items())
        for hour, of_hour in tallies.hours(connection, Subject.FETCH, first, until).items()
    }
    whole = reduce(add, hours.values(), Histogram())
    return FetchTimes(
        whole.number,
        _p95(whole),
        {hour: p95 for hour, one in hours.items() if (p95 := _p95(one)) is not None},
    )


def _together(parts: Iterable[tuple[Labels, Histogram]]) -> Histogram:
    """All but what we broke off ourselves: how long that would have taken is not known."""
    counted = (one for (_, outcome), one in parts if outcome != FetchOutcome.ABANDONED.value)
    return reduce(add, counted, Histogram())


def _p95(one: Histogram) -> float | None:
    return one.quantile(SHARE, Subject.FETCH.bounds)
