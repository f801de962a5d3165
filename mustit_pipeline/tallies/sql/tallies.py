"""Counts and durations that only grow: of fetches, changes, deliveries and samples, by hour and all together.

They are written in the transaction of what they count, by any number of processes: so they are right wherever read.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum

import orjson
from sqlalchemy import Connection, text

from mustit_pipeline.foundation.advisory_locks import Numbered
from mustit_pipeline.foundation.aging import Aged
from mustit_pipeline.tallies.histogram import Histogram

Labels = tuple[str, ...]


class Subject(StrEnum):
    """What is counted."""

    FETCH = "FETCH"
    CHANGE = "CHANGE"
    DELIVERY = "DELIVERY"
    SAMPLE = "SAMPLE"

    @property
    def bounds(self) -> tuple[float, ...]:
        """Upper bounds of the buckets in seconds. Stored buckets have no bounds: other ones need a migration."""
        return _BOUNDS[self]


_MINUTE, _HOUR = 60.0, 3600.0
_BOUNDS: dict[Subject, tuple[float, ...]] = {
    # The criterion, 5 s, is one of them: whether it is kept is no estimate.
    Subject.FETCH: (0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 7.5, 10.0, 15.0, 30.0),
    Subject.CHANGE: (),
    Subject.SAMPLE: (),
    Subject.DELIVERY: (
        *(1.0, 5.0, 15.0, _MINUTE, 5 * _MINUTE, 15 * _MINUTE),
        *(_HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR, 24 * _HOUR, 48 * _HOUR),
    ),
}

AGED = Aged("tallies", ("hour",))
KEPT_DAYS = 366

# A slot is held until the transaction ends: no other transaction writes its rows. With more transactions at once than
# slots, the number of its own server process is one that no other has.
_SLOT = """coalesce(
    (SELECT n FROM generate_series(0, 999) AS n WHERE pg_try_advisory_xact_lock(:family, n) LIMIT 1),
    1000 + pg_backend_pid())"""

_ADD = text(f"""
    INSERT INTO tallies (subject, hour, labels, slot, number, seconds, buckets)
    SELECT :subject, h.hour, a.labels, {_SLOT}, a.number, a.seconds, a.buckets
    FROM jsonb_to_recordset(CAST(:added AS jsonb)) AS a(labels text[], number bigint, seconds float8, buckets bigint[])
    CROSS JOIN (VALUES (date_trunc('hour', now())), (CAST('infinity' AS timestamptz))) AS h(hour)
    ON CONFLICT (subject, hour, labels, slot) DO UPDATE
    SET number = tallies.number + excluded.number, seconds = tallies.seconds + excluded.seconds,
        buckets = ARRAY(SELECT b.old + b.new FROM unnest(tallies.buckets, excluded.buckets)
                        WITH ORDINALITY AS b(old, new, place) ORDER BY b.place)
""")

_TOTALS = text("""
    SELECT labels, number, seconds, buckets FROM tallies WHERE subject = :subject AND hour = 'infinity'
""")

_HOURS = text("""
    SELECT hour, labels, number, seconds, buckets FROM tallies
    WHERE subject = :subject AND hour >= :since AND hour < :until
    ORDER BY hour
""")


def add(connection: Connection, subject: Subject, durations: Mapping[Labels, Iterable[float]]) -> None:
    """Count what took so long, by labels."""
    _add(connection, subject, {labels: Histogram.of(each, subject.bounds) for labels, each in durations.items()})


def count(connection: Connection, subject: Subject, numbers: Mapping[Labels, int]) -> None:
    """Count what has no duration, by labels."""
    _add(connection, subject, {labels: Histogram(number) for labels, number in numbers.items()})


def totals(connection: Connection, subject: Subject) -> dict[Labels, Histogram]:
    """Everything that was ever counted, by labels; it never falls."""
    found: dict[Labels, Histogram] = defaultdict(Histogram)
    for row in connection.execute(_TOTALS, {"subject": subject.value}):
        found[tuple(row.labels)] += Histogram(row.number, row.seconds, tuple(row.buckets))
    return dict(found)


def hours(
    connection: Connection, subject: Subject, since: datetime, until: datetime
) -> dict[datetime, dict[Labels, Histogram]]:
    """The hours that began between two times and have anything in them, in their order; each by labels."""
    found: dict[datetime, dict[Labels, Histogram]] = defaultdict(lambda: defaultdict(Histogram))
    for row in connection.execute(_HOURS, {"subject": subject.value, "since": since, "until": until}):
        found[row.hour][tuple(row.labels)] += Histogram(row.number, row.seconds, tuple(row.buckets))
    return {hour: dict(of_hour) for hour, of_hour in found.items()}


def _add(connection: Connection, subject: Subject, added: Mapping[Labels, Histogram]) -> None:
    rows = [
        {"labels": labels, "number": one.number, "seconds": one.seconds, "buckets": one.buckets}
        for labels, one in added.items()
        if one.number
    ]
    if rows:
        values = {"subject": subject.value, "family": Numbered.TALLY_SLOT, "added": orjson.dumps(rows).decode()}
        connection.execute(_ADD, values)
