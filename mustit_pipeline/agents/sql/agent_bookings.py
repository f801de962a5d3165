"""Bookings of agents: PostgreSQL's own count, and the durable copy of Redis's count."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, text

from mustit_pipeline.domain.states import AgentStatus
from mustit_pipeline.foundation import advisory_locks
from mustit_pipeline.foundation.advisory_locks import Only
from mustit_pipeline.foundation.aging import Aged

# Bookings that ended before any window that could count them.
AGED = Aged("agent_bookings", ("ends_at",))

# Workers report twice a second; one that has been silent for so long is gone.
SILENT_SECONDS = 6.0


class CountedElsewhere(Exception):
    """PostgreSQL does not count at present, or the caller's epoch is old."""


@dataclass(frozen=True, slots=True)
class BookingRecord:
    """A booking with ages instead of times: clocks differ, and a late age only makes the booking younger."""

    booking_id: UUID
    agent_id: UUID
    booked_ago: float
    expires_in: float
    answered_ago: float | None
    throttled: bool
    fresh: bool


@dataclass(frozen=True, slots=True)
class AgentLimits:
    """At most `requests` in any `window` seconds, and `gap` seconds between an answer and the next request."""

    requests: int
    window: float
    gap: float

    @property
    def rest(self) -> float:
        """The least pause after an answer."""
        return max(self.gap, self.window) if self.requests == 1 else self.gap


@dataclass(frozen=True, slots=True)
class BookedAgent:
    """The booked agent, and the number of its token."""

    agent_id: UUID
    token_no: int


@dataclass(frozen=True, slots=True)
class SeedAgent:
    """An agent's use in seconds relative to now: the ends of its bookings, oldest first, and the open booking."""

    agent_id: UUID
    ends: tuple[float, ...]
    open_booking: UUID | None
    open_ends: float


_NOW = "coalesce(CAST(:now AS timestamptz), clock_timestamp())"
_SPAN = "make_interval(secs => :{0})"

# In the order of the index of each agent's bookings alone: the index of all ends has another one, and a planner that
# believes in few agents would read all their bookings there.
_LAST_END = """(SELECT b.ends_at FROM agent_bookings b WHERE b.agent_id = {0}.agent_id
         ORDER BY b.ends_at DESC NULLS LAST LIMIT 1)"""

_COUNTER = text("SELECT counter = 'postgres' AND epoch = :epoch FROM pool_state")

_CHOOSE = text(f"""
    SELECT a.agent_id, a.token_no
    FROM agent_limits l JOIN user_agents a USING (agent_id), (SELECT {_NOW} AS now) clock
    WHERE a.status = 'AVAILABLE' AND l.next_free_at <= clock.now
    ORDER BY a.token_expires_at IS NOT NULL AND a.token_expires_at > clock.now DESC,
             a.health DESC, l.last_used_at NULLS FIRST, a.agent_id
    LIMIT 1 FOR UPDATE OF l SKIP LOCKED
""")

# A separate statement, because only its snapshot surely contains every booking made before the row was locked.
_BOOK = text(f"""
    WITH clock AS (SELECT {_NOW} AS now),
    booked AS (
        INSERT INTO agent_bookings (booking_id, agent_id, booked_at, expires_at)
        SELECT :booking_id, :agent_id, now, now + {_SPAN.format("hold")} FROM clock
    )
    UPDATE agent_limits l SET last_used_at = clock.now, next_free_at = greatest(
        clock.now + {_SPAN.format("hold")} + {_SPAN.format("rest")},
        (SELECT b.ends_at FROM agent_bookings b
         WHERE b.agent_id = :agent_id AND b.ends_at > clock.now - {_SPAN.format("window")}
         ORDER BY b.ends_at DESC NULLS LAST OFFSET :others LIMIT 1) + {_SPAN.format("window")}
    )
    FROM clock WHERE l.agent_id = :agent_id
""")

_NEXT_FREE = text(f"""
    SELECT extract(epoch FROM min(l.next_free_at) - {_NOW})
    FROM agent_limits l JOIN user_agents a USING (agent_id) WHERE a.status = 'AVAILABLE'
""")

_LOCK_LIMITS = text("SELECT agent_id FROM agent_limits WHERE agent_id = ANY(:ids) ORDER BY agent_id FOR UPDATE")

_RECORD = text(f"""
    INSERT INTO agent_bookings AS b (booking_id, agent_id, booked_at, expires_at, answered_at, throttled)
    SELECT booking_id, agent_id, now - make_interval(secs => booked), now + make_interval(secs => expires),
           now - make_interval(secs => answered), throttled
    FROM unnest(CAST(:booking_ids AS uuid[]), CAST(:agent_ids AS uuid[]), CAST(:booked AS float8[]),
                CAST(:expires AS float8[]), CAST(:answered AS float8[]), CAST(:throttled AS boolean[]))
         AS r (booking_id, agent_id, booked, expires, answered, throttled), (SELECT {_NOW} AS now) clock
    ON CONFLICT (booking_id) DO UPDATE SET answered_at = excluded.answered_at, throttled = excluded.throttled
    WHERE excluded.answered_at IS NOT NULL AND b.answered_at IS NULL
""")

_REFREE = text(f"""
    UPDATE agent_limits l SET next_free_at = greatest(
        {_LAST_END.format("l")} + {_SPAN.format("rest")},
        (SELECT b.ends_at FROM agent_bookings b WHERE b.agent_id = l.agent_id
         ORDER BY b.ends_at DESC NULLS LAST OFFSET :others LIMIT 1) + {_SPAN.format("window")},
        {_NOW} + {_SPAN.format("pause")}
    ) WHERE l.agent_id = ANY(:ids)
""")

_REFREE_ALL = text(f"""
    UPDATE agent_limits l SET next_free_at = greatest(
        {_LAST_END.format("l")} + {_SPAN.format("rest")},
        (SELECT b.ends_at FROM agent_bookings b WHERE b.agent_id = l.agent_id
         ORDER BY b.ends_at DESC NULLS LAST OFFSET :others LIMIT 1) + {_SPAN.format("window")},
        {_NOW}
    ), last_used_at = greatest(l.last_used_at,
        (SELECT max(b.booked_at) FROM agent_bookings b WHERE b.agent_id = l.agent_id))
""")

_LOCK_AGENTS = text("SELECT agent_id FROM user_agents WHERE agent_id = ANY(:ids) ORDER BY agent_id FOR NO KEY UPDATE")

_COUNT_DAY = text("""
    UPDATE user_agents a SET last_used_at = clock_timestamp(), requests_day = today.day,
        requests_today = CASE WHEN a.requests_day = today.day THEN a.requests_today ELSE 0 END + used.requests
    FROM unnest(CAST(:ids AS uuid[]), CAST(:requests AS int[])) AS used (agent_id, requests),
         (SELECT (clock_timestamp() AT TIME ZONE 'Asia/Seoul')::date AS day) today
    WHERE a.agent_id = used.agent_id
""")

_SEED = text(f"""
    SELECT a.agent_id, b.booking_id, b.answered_at IS NULL AS open,
           extract(epoch FROM b.ends_at - {_NOW})::float8 AS ends_in
    FROM user_agents a LEFT JOIN agent_bookings b
      ON b.agent_id = a.agent_id AND b.ends_at > {_NOW} - {_SPAN.format("window")}
    ORDER BY a.agent_id, b.ends_at, b.booking_id
""")


def book(
    connection: Connection,
    booking_id: UUID,
    limits: AgentLimits,
    *,
    hold: float,
    epoch: int,
    now: datetime | None = None,
) -> BookedAgent | float | None:
    """The best free agent, booked; or the seconds until one is free, None without any."""
    _share_counter(connection)
    if not connection.execute(_COUNTER, {"epoch": epoch}).scalar_one():
        raise CountedElsewhere
    row = connection.execute(_CHOOSE, {"now": now}).one_or_none()
    if row is None:
        seconds = connection.execute(_NEXT_FREE, {"now": now}).scalar_one()
        # Not positive: another transaction is booking it and has its row locked.
        return None if seconds is None else max(float(seconds), 0.002)
    connection.execute(
        _BOOK,
        {
            "now": now,
            "booking_id": booking_id,
            "agent_id": row.agent_id,
            "hold": hold,
            "rest": limits.rest,
            "window": limits.window,
            "others": max(0, limits.requests - 2),
        },
    )
    return BookedAgent(row.agent_id, row.token_no)


def record(
    connection: Connection, records: Sequence[BookingRecord], limits: AgentLimits, now: datetime | None = None
) -> None:
    """Write bookings and answers, and compute when their agents are free."""
    if not records:
        return
    ids = sorted({record.agent_id for record in records})
    _share_counter(connection)
    # While Redis counts, agent_limits is not read, and the worker that takes over computes it from the bookings.
    counting = connection.execute(text("SELECT counter = 'postgres' FROM pool_state")).scalar_one()
    if counting:
        connection.execute(_LOCK_LIMITS, {"ids": ids})
    connection.execute(
        _RECORD,
        {
            "now": now,
            "booking_ids": [r.booking_id for r in records],
            "agent_ids": [r.agent_id for r in records],
            "booked": [r.booked_ago for r in records],
            "expires": [r.expires_in for r in records],
            "answered": [r.answered_ago for r in records],
            "throttled": [r.throttled for r in records],
        },
    )
    if counting:
        connection.execute(_REFREE, _refree(limits, now) | {"ids": ids, "pause": 0.0})
    fresh: dict[UUID, int] = {}
    for entry in records:
        if entry.fresh:
            fresh[entry.agent_id] = fresh.get(entry.agent_id, 0) + 1
    if fresh:
        connection.execute(_LOCK_AGENTS, {"ids": list(fresh)})
        connection.execute(_COUNT_DAY, {"ids": list(fresh), "requests": list(fresh.values())})


def withdraw(
    connection: Connection,
    booking_id: UUID,
    agent_id: UUID,
    limits: AgentLimits,
    *,
    pause: float,
    now: datetime | None = None,
) -> None:
    """Remove a booking that was never sent; its agent is free after `pause` seconds."""
    connection.execute(_LOCK_LIMITS, {"ids": [agent_id]})
    connection.execute(text("DELETE FROM agent_bookings WHERE booking_id = :id"), {"id": booking_id})
    connection.execute(_REFREE, _refree(limits, now) | {"ids": [agent_id], "pause": pause})


def remove(connection: Connection, booking_ids: Sequence[UUID]) -> None:
    """Remove bookings that were written and never sent, while PostgreSQL does not count."""
    if booking_ids:
        connection.execute(text("DELETE FROM agent_bookings WHERE booking_id = ANY(:ids)"), {"ids": list(booking_ids)})


def in_window(connection: Connection, window: float) -> tuple[int, int]:
    """The written requests of AVAILABLE agents in the window, and how many of them are in flight.

    An agent has at most one in flight, and none once every worker is gone: an open booking then only counts as used.
    """
    row = connection.execute(
        text(f"""
            SELECT count(*) AS used,
                count(DISTINCT b.agent_id) FILTER (WHERE b.answered_at IS NULL AND b.expires_at > {_NOW} AND EXISTS (
                    SELECT FROM pool_workers WHERE seen_at > {_NOW} - {_SPAN.format("silence")})) AS in_flight
            FROM agent_bookings b JOIN user_agents a USING (agent_id)
            WHERE a.status = 'AVAILABLE' AND b.ends_at > {_NOW} - {_SPAN.format("window")}
        """),
        {"now": None, "window": window, "silence": SILENT_SECONDS},
    ).one()
    return row.used, row.in_flight


def used_by(connection: Connection, agent_ids: Sequence[UUID], limits: AgentLimits) -> dict[UUID, int]:
    """The written requests of these agents in the window."""
    rows = connection.execute(
        text(f"""
            SELECT agent_id, (SELECT count(*) FROM (
                SELECT b.ends_at FROM agent_bookings b WHERE b.agent_id = a.agent_id
                ORDER BY b.ends_at DESC NULLS LAST LIMIT :requests) n
                WHERE n.ends_at > {_NOW} - {_SPAN.format("window")}) AS used
            FROM unnest(CAST(:ids AS uuid[])) AS a(agent_id)
        """),
        {"now": None, "ids": list(agent_ids), "requests": limits.requests, "window": limits.window},
    )
    return {row.agent_id: row.used for row in rows}


def next_free_at(connection: Connection, limits: AgentLimits) -> datetime | None:
    """When the first AVAILABLE agent is free according to the written bookings; None without any."""
    return connection.execute(
        text(f"""
            SELECT min(coalesce(greatest(
                {_LAST_END.format("a")} + {_SPAN.format("rest")},
                (SELECT b.ends_at FROM agent_bookings b WHERE b.agent_id = a.agent_id
                 ORDER BY b.ends_at DESC NULLS LAST OFFSET :others LIMIT 1) + {_SPAN.format("window")}
            ), a.created_at))
            FROM user_agents a WHERE a.status = 'AVAILABLE'
        """),
        _refree(limits, None),
    ).scalar_one()


def refree_all(connection: Connection, limits: AgentLimits) -> None:
    """Compute when every agent is free."""
    connection.execute(_REFREE_ALL, _refree(limits, None))


def read_seed(connection: Connection, limits: AgentLimits) -> list[SeedAgent]:
    """The use of every agent, to seed Redis with."""
    found: dict[UUID, list[tuple[float, UUID | None]]] = {}
    for row in connection.execute(_SEED, {"now": None, "window": limits.window}):
        ends = found.setdefault(row.agent_id, [])
        if row.booking_id is not None:
            ends.append((row.ends_in, row.booking_id if row.open else None))
    return [_seed(agent_id, ends[-limits.requests :]) for agent_id, ends in found.items()]


def assume_used(connection: Connection, times: int, hold: float) -> None:
    """Add bookings of every agent for a worker that is gone: as many as it may have left unwritten."""
    connection.execute(
        text(f"""
            INSERT INTO agent_bookings (booking_id, agent_id, booked_at, expires_at)
            SELECT gen_random_uuid(), agent_id, clock_timestamp(), clock_timestamp() + {_SPAN.format("hold")}
            FROM user_agents, generate_series(1, :times)
        """),
        {"times": times, "hold": hold},
    )


def prune(connection: Connection, older_than: float) -> int:
    """Delete bookings that are older than any window."""
    return connection.execute(
        text("DELETE FROM agent_bookings WHERE ends_at < clock_timestamp() - make_interval(secs => :age)"),
        {"age": older_than},
    ).rowcount


def _share_counter(connection: Connection) -> None:
    """The worker that hands the counting over holds it alone; a separate statement, before the counter is read."""
    advisory_locks.lock_shared(connection, Only.REQUEST_COUNTER)


def _refree(limits: AgentLimits, now: datetime | None) -> dict[str, object]:
    return {"now": now, "rest": limits.rest, "window": limits.window, "others": limits.requests - 1}


def _seed(agent_id: UUID, ends: list[tuple[float, UUID | None]]) -> SeedAgent:
    # If several bookings are open, only the newest can still be answered; the others end when they expire.
    open_booking, open_ends = None, 0.0
    if ends and ends[-1][1] is not None:
        open_ends, open_booking = ends.pop()
    return SeedAgent(agent_id, tuple(end for end, _ in ends), open_booking, open_ends)


# Only the newest bookings, as many as an agent has slots, can delay it, so no more are read.
_USABLE = text(f"""
    SELECT coalesce(extract(epoch FROM a.suspended_until - :now), 0)::float8 AS rests,
           ARRAY(SELECT extract(epoch FROM n.ends_at - :now)::float8
                 FROM (SELECT b.ends_at FROM agent_bookings b WHERE b.agent_id = a.agent_id
                       ORDER BY b.ends_at DESC NULLS LAST LIMIT :requests) n
                 WHERE n.ends_at > :now - make_interval(secs => :window)
                 ORDER BY n.ends_at DESC) AS ends
    FROM user_agents a WHERE a.status <> '{AgentStatus.BLOCKED.value}'
""")


@dataclass(frozen=True, slots=True)
class AgentUse:
    """An agent in seconds from now: the end of its suspension, and the ends of its bookings, oldest first.

    A booking in flight counts as ended now, the earliest time of its answer.
    """

    rests: float
    ends: tuple[float, ...]


def usable(connection: Connection, limits: AgentLimits, now: datetime) -> list[AgentUse]:
    """Every agent that is AVAILABLE or will recover, with its written bookings."""
    rows = connection.execute(_USABLE, {"now": now, "window": limits.window, "requests": limits.requests})
    return [AgentUse(max(0.0, row.rests), tuple(min(0.0, end) for end in reversed(row.ends))) for row in rows]
