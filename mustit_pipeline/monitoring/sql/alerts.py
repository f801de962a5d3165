"""Alerts: one open per subject; the sender that claims an alert sends it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, Row, text

from mustit_pipeline.foundation.aging import Aged
from mustit_pipeline.foundation.paging import Page, page

# An alert that ended so long ago was opened earlier still, and only opened_at has an index.
AGED = Aged("alerts", ("opened_at", "ended_at"))


@dataclass(frozen=True, slots=True)
class Condition:
    """A present problem and its subject."""

    subject: str
    kind: str
    title: str
    detail: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of one try of repeated work: a failure with its reason, or a success."""

    subject: str
    kind: str
    at: datetime
    failure: Condition | None


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert: since when it is open, and how often it was sent."""

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
class AlertKey:
    """The place of an alert in a list."""

    opened_at: datetime
    id: UUID


@dataclass(frozen=True, slots=True)
class Notice:
    """A claimed alert, and when each address last got it; empty for an alert that has just ended."""

    alert: Alert
    lease_no: int
    reached: Mapping[str, datetime]


@dataclass(frozen=True, slots=True)
class Notified:
    """The result of a notice: when each address last got it, whether any did now, and when it is due again."""

    notice: Notice
    reached: Mapping[str, datetime]
    heard: bool
    again_at: datetime | None
    error: str | None


# Open alerts are written by those who see them and those who tell of them: all lock them by subject.
_LOCK_OPEN = text("""
    SELECT count(*) FROM (SELECT FROM alerts WHERE ended_at IS NULL ORDER BY subject FOR NO KEY UPDATE) AS locked
""")

# In one order, so that two who see the same for the first time never wait in a circle.
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

# A sender that has claimed the alert holds an outdated text: its lease is void, and the end is due to be sent.
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

# Alerts that failed to be sent come after those not tried yet.
_CLAIM = text("""
    UPDATE alerts a SET lease_owner = :owner, lease_no = a.lease_no + 1,
                        lease_expires_at = clock_timestamp() + make_interval(secs => :lease_seconds)
    WHERE a.alert_id IN (SELECT alert_id FROM alerts
                         WHERE notice_at <= :now AND (lease_expires_at IS NULL OR lease_expires_at < clock_timestamp())
                         ORDER BY last_error IS NOT NULL, notice_at LIMIT :limit FOR UPDATE SKIP LOCKED)
    RETURNING *
""")

_SETTLE = text("""
    WITH told AS (
        SELECT a.alert_id, t.reached, t.heard, t.again_at, t.error
        FROM unnest(CAST(:ids AS uuid[]), CAST(:lease_nos AS int[]), CAST(:reached AS text[]),
                    CAST(:heard AS boolean[]), CAST(:again_at AS timestamptz[]), CAST(:errors AS text[]))
             AS t(id, lease_no, reached, heard, again_at, error)
        JOIN alerts a ON a.alert_id = t.id AND a.lease_no = t.lease_no AND a.lease_owner IS NOT NULL
        ORDER BY a.subject, a.alert_id FOR NO KEY UPDATE OF a
    )
    UPDATE alerts a
    SET reached = string_to_array(t.reached, ' '), notices = a.notices + CASE WHEN t.heard THEN 1 ELSE 0 END,
        notice_at = t.again_at, last_error = t.error, lease_owner = NULL, lease_expires_at = NULL
    FROM told t WHERE a.alert_id = t.alert_id
    RETURNING a.alert_id
""")

_FORGET_ENDED = text("UPDATE alerts SET notice_at = NULL WHERE notice_at IS NOT NULL AND ended_at IS NOT NULL")

_LIST = text("""
    (SELECT * FROM (SELECT * FROM alerts WHERE ended_at IS NULL OFFSET 0) AS open
     ORDER BY opened_at DESC LIMIT :limit)
    UNION ALL
    (SELECT * FROM alerts WHERE :everything AND ended_at IS NOT NULL ORDER BY opened_at DESC LIMIT :limit)
    LIMIT :limit
""")

_BEHIND = f"""(opened_at, alert_id) < (coalesce(CAST(:before AS timestamptz), 'infinity'),
                                  coalesce(CAST(:before_id AS uuid), '{UUID(int=0)}'))
    ORDER BY opened_at DESC, alert_id DESC LIMIT :limit"""
# Open alerts are few, and only their subjects have an index.
_LIST_OPEN = text(f"SELECT * FROM (SELECT * FROM alerts WHERE ended_at IS NULL OFFSET 0) AS open WHERE {_BEHIND}")
_LIST_ENDED = text(f"SELECT * FROM alerts WHERE ended_at IS NOT NULL AND {_BEHIND}")

_OPEN = text("""
    SELECT count(*) AS number, count(*) FILTER (WHERE last_error IS NOT NULL) AS unheard, max(last_error) AS last_error
    FROM alerts WHERE ended_at IS NULL
""")


def lock_open(connection: Connection) -> None:
    """Lock every open alert, for a transaction that opens some and ends others."""
    connection.execute(_LOCK_OPEN)


def see(connection: Connection, conditions: Sequence[tuple[Condition, datetime]], now: datetime) -> int:
    """Open alerts for problems, or keep them open; returns how many were opened."""
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
    """End the alerts of these kinds whose subject is not among the problems and was not seen since then."""
    values = {"kinds": list(kinds), "subjects": list(subjects), "now": now, "unseen_since": unseen_since}
    return len(connection.execute(_END_UNSEEN, values).all())


def end_healed(connection: Connection, healed: Sequence[Outcome], now: datetime) -> int:
    """End the alerts of subjects that succeeded after their last failure."""
    if not healed:
        return 0
    values = {"subjects": [one.subject for one in healed], "times": [one.at for one in healed], "now": now}
    return len(connection.execute(_END_HEALED, values).all())


def claim(connection: Connection, *, owner: str, limit: int, lease_seconds: float, now: datetime) -> list[Notice]:
    """Claim alerts that are due to be sent; no other sender gets them before the lease ends."""
    values = {"owner": owner, "limit": limit, "lease_seconds": lease_seconds, "now": now}
    notices = [Notice(_alert(row), row.lease_no, _reached(row)) for row in connection.execute(_CLAIM, values)]
    return sorted(notices, key=lambda notice: (notice.alert.opened_at, notice.alert.subject))


def settle(connection: Connection, notified: Sequence[Notified]) -> int:
    """Store which addresses got a notice; an alert that ended meanwhile, or whose claim is lost, is left alone."""
    if not notified:
        return 0
    values = {
        "ids": [one.notice.alert.id for one in notified],
        "lease_nos": [one.notice.lease_no for one in notified],
        "reached": [" ".join(f"{key}@{at.isoformat()}" for key, at in one.reached.items()) for one in notified],
        "heard": [one.heard for one in notified],
        "again_at": [one.again_at for one in notified],
        "errors": [one.error for one in notified],
    }
    return len(connection.execute(_SETTLE, values).all())


def forget_ended(connection: Connection) -> None:
    """Without addresses, drop the notices of ended alerts: an address that is set later must not get them."""
    connection.execute(_FORGET_ENDED)


def newest(connection: Connection, *, everything: bool, limit: int) -> Page[Alert]:
    """Open alerts, newest first, then ended ones on request."""
    rows = connection.execute(_LIST, {"everything": everything, "limit": limit + 1})
    return page(map(_alert, rows), limit)


def listed(connection: Connection, *, ended: bool, limit: int, behind: AlertKey | None = None) -> Page[Alert]:
    """Open alerts, or ended ones, newest first; those behind a place in the list where it is given."""
    values = {
        "before": None if behind is None else behind.opened_at,
        "before_id": None if behind is None else behind.id,
        "limit": limit + 1,
    }
    return page(map(_alert, connection.execute(_LIST_ENDED if ended else _LIST_OPEN, values)), limit)


def open_alerts(connection: Connection) -> tuple[int, int, str | None]:
    """The number of open alerts, how many of them failed to be sent, and why."""
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
