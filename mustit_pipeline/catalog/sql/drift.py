"""Schema drift: one row per deviation, with the number of bodies that show it."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, Row, text

from mustit_pipeline.domain.drift import Deviation, DriftKind
from mustit_pipeline.domain.errors import NotFound
from mustit_pipeline.domain.field_paths import FieldPaths
from mustit_pipeline.foundation.audited import State, Target
from mustit_pipeline.foundation.paging import Page, page

# The marketplace chooses the names of new fields, and may send another name in each body.
MOST_ROWS = 1000


@dataclass(frozen=True, slots=True)
class Sighting:
    """A deviation in one body."""

    seller_id: str
    item_no: int | None
    execution_id: UUID
    deviation: Deviation


@dataclass(frozen=True, slots=True)
class Drift:
    """A field that changed shape: since when, in how many bodies, and where last."""

    deviation: Deviation
    first_seen_at: datetime
    last_seen_at: datetime
    count: int
    seller_id: str
    item_no: int | None
    accepted_at: datetime | None


# In one order, so that two batches cannot deadlock.
_RECORD = text("""
    INSERT INTO schema_drift AS known (path, kind, observed, expected, sample, count, seller_id, item_no)
    SELECT seen.* FROM unnest(
        CAST(:paths AS text[]), CAST(:kinds AS text[]), CAST(:observed AS text[]), CAST(:expected AS text[]),
        CAST(:samples AS text[]), CAST(:counts AS bigint[]), CAST(:sellers AS text[]), CAST(:items AS bigint[])
    ) AS seen(path, kind, observed, expected, sample, count, seller_id, item_no)
    WHERE (SELECT count(*) FROM schema_drift) < :most
       OR EXISTS (
           SELECT FROM schema_drift old
           WHERE old.path = seen.path AND old.kind = seen.kind AND old.observed = seen.observed
       )
    ORDER BY seen.path, seen.kind, seen.observed
    ON CONFLICT (path, kind, observed) DO UPDATE SET
        expected = excluded.expected, sample = excluded.sample, count = known.count + excluded.count,
        seller_id = excluded.seller_id, item_no = excluded.item_no,
        -- Of two batches at once the one that began first may be stored last.
        last_seen_at = greatest(known.last_seen_at, excluded.last_seen_at)
""")

_LIST = text("""
    SELECT *, count AS bodies FROM schema_drift
    WHERE (:accepted OR accepted_at IS NULL) AND (CAST(:since AS timestamptz) IS NULL OR last_seen_at >= :since)
    ORDER BY last_seen_at DESC, path, kind, observed LIMIT :limit
""")

_COUNT = text("SELECT count(DISTINCT path) FROM schema_drift WHERE accepted_at IS NULL")

_ROWS = text("SELECT count(*) FROM schema_drift")

_PATHS = text("SELECT DISTINCT path FROM schema_drift ORDER BY path")

_STATES = text("SELECT path, bool_and(accepted_at IS NOT NULL) AS accepted FROM schema_drift GROUP BY path")

_ACCEPT = text("UPDATE schema_drift SET accepted_at = :at WHERE path = ANY(CAST(:paths AS text[]))")

_ACCEPTED = text("SELECT path, kind, observed FROM schema_drift WHERE accepted_at IS NOT NULL")

_FORGET = text("DELETE FROM schema_drift WHERE path = ANY(CAST(:paths AS text[]))")


def record(connection: Connection, sightings: Iterable[Sighting]) -> None:
    """Count the drift in a batch of bodies; last in its transaction, because all batches write the same rows."""
    newest: dict[tuple[str, str, str], Sighting] = {}
    counts: dict[tuple[str, str, str], int] = {}
    for seen in sightings:
        deviation = seen.deviation
        key = (deviation.path, deviation.kind.value, deviation.observed)
        newest[key] = seen
        counts[key] = counts.get(key, 0) + 1
    if not newest:
        return
    connection.execute(
        _RECORD,
        {
            "paths": [path for path, _, _ in newest],
            "kinds": [kind for _, kind, _ in newest],
            "observed": [observed for _, _, observed in newest],
            "expected": [seen.deviation.expected for seen in newest.values()],
            "samples": [seen.deviation.sample for seen in newest.values()],
            "counts": [counts[key] for key in newest],
            "sellers": [seen.seller_id for seen in newest.values()],
            "items": [seen.item_no for seen in newest.values()],
            "most": MOST_ROWS,
        },
    )


def newest(connection: Connection, *, since: datetime | None, accepted: bool, limit: int) -> Page[Drift]:
    """Drift, last seen first; accepted drift only on request."""
    values = {"since": since, "accepted": accepted, "limit": limit + 1}
    return page(map(_drift, connection.execute(_LIST, values)), limit)


def count_open(connection: Connection) -> int:
    """The number of fields with unaccepted drift."""
    return connection.execute(_COUNT).scalar_one()


def is_full(connection: Connection) -> bool:
    """Whether the table is full: new drift is no longer recorded."""
    return connection.execute(_ROWS).scalar_one() >= MOST_ROWS


def accept(connection: Connection, wanted: FieldPaths, at: datetime) -> list[str]:
    """Accept fields as harmless: they are still counted, without a warning."""
    paths = _find(connection, wanted)
    connection.execute(_ACCEPT, {"paths": paths, "at": at})
    return paths


def accepted(connection: Connection) -> frozenset[tuple[str, DriftKind, str]]:
    """The accepted drift: field, kind, and observed shape."""
    return frozenset((row.path, DriftKind(row.kind), row.observed) for row in connection.execute(_ACCEPTED))


def forget(connection: Connection, wanted: FieldPaths) -> list[str]:
    """Delete the drift of fields; a field that still differs is recorded again."""
    paths = _find(connection, wanted)
    connection.execute(_FORGET, {"paths": paths})
    return paths


def target(wanted: FieldPaths) -> Target:
    """Fields with drift as the audit log shows them: accepted or not."""

    def seen(connection: Connection) -> State:
        rows = connection.execute(_STATES)
        return {row.path: "ACCEPTED" if row.accepted else "OPEN" for row in rows if wanted.include(row.path)}

    return Target(f"drift {','.join(wanted.paths)}", seen)


def _find(connection: Connection, wanted: FieldPaths) -> list[str]:
    paths = [path for path in connection.execute(_PATHS).scalars() if wanted.include(path)]
    if not paths:
        raise NotFound(
            "NOT_FOUND_DRIFT",
            korean=f"기록된 스키마 변경이 없습니다: {', '.join(wanted.paths)}",
            english=f"No field that changed is at {', '.join(wanted.paths)}: see `mustit drift list --all`",
        )
    return paths


def _drift(row: Row[tuple[object, ...]]) -> Drift:
    return Drift(
        deviation=Deviation(row.path, DriftKind(row.kind), row.expected, row.observed, row.sample),
        first_seen_at=row.first_seen_at,
        last_seen_at=row.last_seen_at,
        count=row.bodies,
        seller_id=row.seller_id,
        item_no=row.item_no,
        accepted_at=row.accepted_at,
    )
