"""Alerts: one open for a subject at a time, each told once by whoever claims it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, Row, text

from mustit_pipeline.foundation.aging import Aged
from mustit_pipeline.foundation.paging import Page, page

# What has ended so long ago was opened before that, and only that has an index.
AGED = Aged("alerts", ("opened_at", "ended_at"))


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that is wrong right now, and what it is about."""

    subject: str
    kind: str
    title: str
    detail: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """How something ended that is tried again and again: a failure with its reason, or a success."""

    subject: str
    kind: str
    at: datetime
    failure: Condition | None


@dataclass(frozen=True, slots=True)
class Alert:
    """What somebody should know, since when, and how often they were told."""

    id: UUID
    subject: str
    kind: str
    title: str
    detail: str
    opened_at: datetime
    last_seen_at: datetime
    ended_at: datetime | None
    notices: int
    last_error: str | None


@dataclass(frozen=True, slots=True)
class Notice:
    """An alert in our hands, and when each address was told of it last; of its end nobody has been told before."""

    alert: Alert
    lease_no: int
    reached: Mapping[str, datetime]


@dataclass(frozen=True, slots=True)
class Told:
    """What became of a notice: when each address was told last, whether any was now, and when there is more to tell."""

    notice: Notice
    reached: Mapping[str, datetime]
    heard: bool
    again_at: datetime | None
    error: str | None


# A subject is written by whoever sees it; in one order, so that two of them never wait in a circle.
_SEE = text("""
    INSERT INTO alerts AS known (subject, kind, title, detail, opened_at, last_seen_at, notice_at)
    SELECT s.subject, s.kind, s.title, s.detail, s.at, s.at, :now
    FROM unnest(CAST(:subjects AS text[]), CAST(:kinds AS text[]), CAST(:titles AS text[]), CAST(:details AS text[]),
                CAST(:times AS timestamptz[])) AS s(subject, kind, title, detail, at)
    -- What was seen before is seen again where looks overlap: it must not open an alert that has ended since.
    WHERE NOT EXISTS (SELECT FROM alerts a WHERE a.subject = s.subject AND a.last_seen_at >= s.at)
    ORDER BY s.subject
    ON CONFLICT (subject) WHERE ended_at IS NULL DO UPDATE
    SET last_seen_at = excluded.last_seen_at, title = excluded.title, detail = excluded.detail
    RETURNING opened_at = last_seen_at AS opened
""")

# Whoever is telling of an alert that ends has the wrong text: its lease is void, and the end is told.
_END = """
    UPDATE alerts a
    SET ended_at = {at}, notice_at = :now, reached = '{{}}', last_error = NULL, lease_no = a.lease_no + 1,
        lease_owner = NULL, lease_expires_at = NULL
    {which} AND a.ended_at IS NULL
    RETURNING a.alert_id
"""
_END_UNSEEN = text(
    _END.format(
        at="CAST(:now AS timestamptz)",
        which="""WHERE a.kind = ANY(CAST(:kinds AS text[])) AND NOT a.subject = ANY(CAST(:subjects AS text[]))
                   AND a.last_seen_at <= :unseen_since""",
    )
)
_END_HEALED = text(
    _END.format(
        at="h.at",
        which="""FROM unnest(CAST(:subjects AS text[]), CAST(:times AS timestamptz[])) AS h(subject, at)
                 WHERE a.subject = h.subject AND a.last_seen_at < h.at""",
    )
)

# What somebody could not be told of comes after what nobody has tried to tell yet.
_CLAIM = text("""
    UPDATE alerts a SET lease_owner = :owner, lease_no = a.lease_no + 1,
                        lease_expires_at = clock_timestamp() + make_interval(secs => :lease_seconds)
    WHERE a.alert_id IN (SELECT alert_id FROM alerts
                         WHERE notice_at <= :now AND (lease_expires_at IS NULL OR lease_expires_at < clock_timestamp())
                         ORDER BY last_error IS NOT NULL, notice_at LIMIT :limit FOR UPDATE SKIP LOCKED)
    RETURNING *
""")

_SETTLE = text("""
    UPDATE alerts a
    SET reached = string_to_array(t.reached, ' '), notices = a.notices + CASE WHEN t.heard THEN 1 ELSE 0 END,
        notice_at = t.again_at, last_error = t.error, lease_owner = NULL, lease_expires_at = NULL
    FROM unnest(CAST(:ids AS uuid[]), CAST(:lease_nos AS int[]), CAST(:reached AS text[]), CAST(:heard AS boolean[]),
                CAST(:again_at AS timestamptz[]), CAST(:errors AS text[]))
         AS t(id, lease_no, reached, heard, again_at, error)
    WHERE a.alert_id = t.id AND a.lease_no = t.lease_no AND a.lease_owner IS NOT NULL
    RETURNING a.alert_id
""")

_NOBODY_TO_TELL = text("UPDATE alerts SET notice_at = NULL WHERE notice_at IS NOT NULL AND ended_at IS NOT NULL")

_LIST = text("""
    (SELECT * FROM (SELECT * FROM alerts WHERE ended_at IS NULL OFFSET 0) AS open
     ORDER BY opened_at DESC LIMIT :limit)
    UNION ALL
    (SELECT * FROM alerts WHERE :everything AND ended_at IS NOT NULL ORDER BY opened_at DESC LIMIT :limit)
    LIMIT :limit
""")

_OPEN = text("""
    SELECT count(*) AS number, count(*) FILTER (WHERE last_error IS NOT NULL) AS unheard, max(last_error) AS last_error
    FROM alerts WHERE ended_at IS NULL
""")


def see(connection: Connection, conditions: Sequence[tuple[Condition, datetime]], now: datetime) -> int:
    """Open an alert for what is wrong, or keep it open; says how many were opened."""
    if not conditions:
        return 0
    values = {
        "now": now,
        "subjects": [one.subject for one, _ in conditions],
        "kinds": [one.kind for one, _ in conditions],
        "titles": [one.title for one, _ in conditions],
        "details": [one.detail for one, _ in conditions],
        "times": [at for _, at in conditions],
    }
    return sum(row.opened for row in connection.execute(_SEE, values))


def end_unseen(
    connection: Connection, kinds: Collection[str], subjects: Collection[str], now: datetime, unseen_since: datetime
) -> int:
    """End the alerts of these kinds whose subject is well now and was not seen ill since a moment."""
    values = {"kinds": list(kinds), "subjects": list(subjects), "now": now, "unseen_since": unseen_since}
    return len(connection.execute(_END_UNSEEN, values).all())


def end_healed(connection: Connection, healed: Sequence[Outcome], now: datetime) -> int:
    """End the alerts of what succeeded after it was seen to fail."""
    if not healed:
        return 0
    values = {"subjects": [one.subject for one in healed], "times": [one.at for one in healed], "now": now}
    return len(connection.execute(_END_HEALED, values).all())


def claim(connection: Connection, *, owner: str, limit: int, lease_seconds: float, now: datetime) -> list[Notice]:
    """Take alerts that somebody has to be told of; nobody else has them until the lease ends."""
    values = {"owner": owner, "limit": limit, "lease_seconds": lease_seconds, "now": now}
    notices = [Notice(_alert(row), row.lease_no, _reached(row)) for row in connection.execute(_CLAIM, values)]
    return sorted(notices, key=lambda notice: (notice.alert.opened_at, notice.alert.subject))


def settle(connection: Connection, told: Sequence[Told]) -> int:
    """Write down who has been told; what ended meanwhile, or is another's by now, is left alone."""
    if not told:
        return 0
    values = {
        "ids": [one.notice.alert.id for one in told],
        "lease_nos": [one.notice.lease_no for one in told],
        "reached": [" ".join(f"{key}@{at.isoformat()}" for key, at in one.reached.items()) for one in told],
        "heard": [one.heard for one in told],
        "again_at": [one.again_at for one in told],
        "errors": [one.error for one in told],
    }
    return len(connection.execute(_SETTLE, values).all())


def forget_ended(connection: Connection) -> None:
    """Nobody is to be told: an address that is set one day must not hear of what was over long before."""
    connection.execute(_NOBODY_TO_TELL)


def newest(connection: Connection, *, everything: bool, limit: int) -> Page[Alert]:
    """Open alerts, newest first, then those that are over where asked."""
    rows = connection.execute(_LIST, {"everything": everything, "limit": limit + 1})
    return page(map(_alert, rows), limit)


def open_alerts(connection: Connection) -> tuple[int, int, str | None]:
    """How many are open, how many of them somebody could not be told of, and why."""
    row = connection.execute(_OPEN).one()
    return row.number, row.unheard, row.last_error


def _reached(row: Row[tuple[object, ...]]) -> dict[str, datetime]:
    entries = [entry.partition("@") for entry in row.reached]
    return {key: datetime.fromisoformat(at) if at else row.opened_at for key, _, at in entries}


def _alert(row: Row[tuple[object, ...]]) -> Alert:
    return Alert(
        id=row.alert_id,
        subject=row.subject,
        kind=row.kind,
        title=row.title,
        detail=row.detail,
        opened_at=row.opened_at,
        last_seen_at=row.last_seen_at,
        ended_at=row.ended_at,
        notices=row.notices,
        last_error=row.last_error,
    )
