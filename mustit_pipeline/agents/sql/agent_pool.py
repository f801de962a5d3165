"""The state shared by all workers of the agent pool: breaker, host pause, and the present counter."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from uuid import UUID

from sqlalchemy import Connection, text

from mustit_pipeline.foundation import advisory_locks
from mustit_pipeline.foundation.advisory_locks import Only


@dataclass(frozen=True, slots=True)
class PoolRow:
    """The shared state, and the database's time when it was read."""

    now: datetime
    counter: str
    epoch: int
    redis_run_id: str | None
    moved_at: datetime | None
    paused_until: datetime | None
    pause_seconds: int
    pause_level: int
    breaker_open_until: datetime | None
    trial_owner: UUID | None
    trial_until: datetime | None


_POOL = (
    "SELECT clock_timestamp() AS now, counter, epoch, redis_run_id, moved_at, paused_until, pause_seconds, pause_level,"
    " breaker_open_until, trial_owner, trial_until FROM pool_state"
)


def read_pool(connection: Connection, *, lock: bool = False) -> PoolRow:
    """The shared row; a transaction that changes an agent's status locks it first: the common lock order."""
    return PoolRow(*connection.execute(text(_POOL + (" FOR UPDATE" if lock else ""))).one())


def open_breaker_if_few(connection: Connection, least_share: float, cooldown: float) -> bool:
    """Open the breaker if less than the share is AVAILABLE and it is time to judge."""
    return bool(
        connection.execute(
            text("""
                UPDATE pool_state
                SET breaker_open_until = clock_timestamp() + make_interval(secs => :cooldown),
                    trial_owner = NULL, trial_until = NULL
                WHERE breaker_open_until IS NULL
                  AND (breaker_judge_after IS NULL OR breaker_judge_after <= clock_timestamp())
                  AND (SELECT count(*) FILTER (WHERE status = 'AVAILABLE') < CAST(:share AS numeric) * count(*)
                       FROM user_agents)
            """),
            # As a decimal: as binary floats, 7 of 35 would be less than a fifth.
            {"share": Decimal(str(least_share)), "cooldown": cooldown},
        ).rowcount
    )


def claim_trial(connection: Connection, owner: UUID, seconds: float) -> bool:
    """Claim the one trial request of a half-open breaker; an abandoned trial expires."""
    return bool(
        connection.execute(
            text("""
                UPDATE pool_state SET trial_owner = :owner,
                    trial_until = clock_timestamp() + make_interval(secs => :seconds)
                WHERE breaker_open_until <= clock_timestamp()
                  AND (trial_until IS NULL OR trial_until < clock_timestamp())
            """),
            {"owner": owner, "seconds": seconds},
        ).rowcount
    )


def end_trial(connection: Connection, owner: UUID, *, good: bool | None, cooldown: float) -> None:
    """Close the breaker, open it again, or (None) leave it half-open for another trial."""
    connection.execute(
        text("""
            UPDATE pool_state SET trial_owner = NULL, trial_until = NULL,
                breaker_open_until = CASE CAST(:good AS boolean) WHEN true THEN NULL
                    WHEN false THEN clock_timestamp() + make_interval(secs => :cooldown) ELSE breaker_open_until END,
                breaker_judge_after = CASE WHEN :good THEN clock_timestamp() + make_interval(secs => :cooldown)
                    ELSE breaker_judge_after END
            WHERE trial_owner = :owner
        """),
        {"owner": owner, "good": good, "cooldown": cooldown},
    )


def pause_host(connection: Connection, until: datetime, seconds: float, level: int) -> None:
    """Pause all calls until then; a pause is never shortened."""
    connection.execute(
        text("""
            UPDATE pool_state SET paused_until = greatest(paused_until, :until), pause_seconds = :seconds,
                pause_level = :level
        """),
        {"until": until, "seconds": int(seconds), "level": level},
    )


def end_pause(connection: Connection) -> datetime | None:
    """End the pause now, as if it had been a short one; returns its planned end, None without a pause."""
    return connection.execute(
        text("""
            UPDATE pool_state p SET paused_until = clock_timestamp(), pause_seconds = 0, pause_level = 0
            FROM (SELECT paused_until FROM pool_state FOR UPDATE) AS was
            WHERE was.paused_until > clock_timestamp() RETURNING was.paused_until
        """)
    ).scalar_one_or_none()


def close_breaker(connection: Connection, cooldown: float) -> datetime | None:
    """Close the breaker now, as after a good trial: the share is not judged again for a cool-down.

    Returns the planned end, None if it was closed.
    """
    return connection.execute(
        text("""
            UPDATE pool_state p SET breaker_open_until = NULL, trial_owner = NULL, trial_until = NULL,
                breaker_judge_after = clock_timestamp() + make_interval(secs => :cooldown)
            FROM (SELECT breaker_open_until FROM pool_state FOR UPDATE) AS was
            WHERE was.breaker_open_until IS NOT NULL RETURNING was.breaker_open_until
        """),
        {"cooldown": cooldown},
    ).scalar_one_or_none()


def last_good_answer(connection: Connection, since: datetime) -> datetime | None:
    """When the marketplace last answered any agent with anything but a 429, if since then."""
    return connection.execute(
        text("""
            SELECT max(ends_at) FROM agent_bookings
            WHERE ends_at > :since AND answered_at IS NOT NULL AND NOT throttled
        """),
        {"since": since},
    ).scalar_one()


def good_answers(connection: Connection, since: datetime) -> int:
    """How many answers other than 429 the marketplace has given since then."""
    return connection.execute(
        text("""
            SELECT count(*) FROM agent_bookings
            WHERE ends_at > :since AND answered_at IS NOT NULL AND NOT throttled
        """),
        {"since": since},
    ).scalar_one()


def lock_counter(connection: Connection) -> PoolRow:
    """The shared row, for the worker that hands the counting over: no other books in PostgreSQL meanwhile."""
    advisory_locks.lock(connection, Only.REQUEST_COUNTER)
    return read_pool(connection, lock=True)


def set_counter(connection: Connection, counter: str, epoch: int, redis_run_id: str | None) -> None:
    """Set the counter."""
    connection.execute(
        text(
            "UPDATE pool_state SET counter = :counter, epoch = :epoch, redis_run_id = :run_id,"
            " moved_at = clock_timestamp()"
        ),
        {"counter": counter, "epoch": epoch, "run_id": redis_run_id},
    )


def report_worker(connection: Connection, worker_id: UUID, epoch: int, *, reaches_redis: bool) -> None:
    """Record a worker's heartbeat: all its bookings from before `epoch` are written."""
    connection.execute(
        text("""
            INSERT INTO pool_workers (worker_id, epoch, reaches_redis) VALUES (:id, :epoch, :redis)
            ON CONFLICT (worker_id) DO UPDATE
            SET epoch = :epoch, reaches_redis = :redis, seen_at = clock_timestamp()
        """),
        {"id": worker_id, "epoch": epoch, "redis": reaches_redis},
    )


def remove_worker(connection: Connection, worker_id: UUID) -> None:
    """Remove a worker that has written everything and ends."""
    connection.execute(text("DELETE FROM pool_workers WHERE worker_id = :id"), {"id": worker_id})


def remove_forgotten_workers(connection: Connection, older_than: float) -> None:
    """Remove workers that are gone for so long that no window contains their unwritten bookings."""
    connection.execute(
        text("DELETE FROM pool_workers WHERE seen_at < clock_timestamp() - make_interval(secs => :age)"),
        {"age": older_than},
    )


def workers_before(connection: Connection, epoch: int) -> int:
    """How many workers have not reported since `epoch` was declared, new ones included."""
    return connection.execute(
        text("SELECT count(*) FROM pool_workers WHERE epoch < :epoch"), {"epoch": epoch}
    ).scalar_one()


def silent_workers(connection: Connection, epoch: int) -> int:
    """How many workers may hold unwritten bookings from before `epoch`: those that reported the epoch before it."""
    return connection.execute(
        text("SELECT count(*) FROM pool_workers WHERE epoch = :epoch - 1"), {"epoch": epoch}
    ).scalar_one()


def remove_silent_workers(connection: Connection, epoch: int) -> None:
    """Stop waiting for silent workers; one that recovers reports again."""
    connection.execute(text("DELETE FROM pool_workers WHERE epoch < :epoch"), {"epoch": epoch})


def any_worker_without_redis(connection: Connection, seconds: float) -> bool:
    """Whether a live worker cannot reach Redis: then Redis must not count."""
    return connection.execute(
        text("""
            SELECT EXISTS (SELECT FROM pool_workers
            WHERE NOT reaches_redis AND seen_at > clock_timestamp() - make_interval(secs => :seconds))
        """),
        {"seconds": seconds},
    ).scalar_one()
