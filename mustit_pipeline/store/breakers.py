"""Circuit breakers that every process sees."""

from sqlalchemy import Connection, text


def open_for(connection: Connection, name: str) -> float | None:
    """Seconds until the next trial; 0 where a trial is due; None where the breaker is closed."""
    query = text("SELECT extract(epoch FROM open_until - now()) FROM circuit_breakers WHERE name = :name")
    seconds = connection.execute(query, {"name": name}).scalar_one_or_none()
    return None if seconds is None else max(0.0, float(seconds))


def failed(connection: Connection, name: str, *, failures: int, threshold: int, cooldown: float) -> bool:
    """Add failures in a row; at the threshold the breaker opens, or stays open for another cool-down."""
    query = text("""
        INSERT INTO circuit_breakers AS b (name, failures, open_until)
        VALUES (:name, :failures,
                CASE WHEN :failures >= :threshold THEN now() + make_interval(secs => :cooldown) END)
        ON CONFLICT (name) DO UPDATE
        SET failures = b.failures + :failures, updated_at = now(),
            open_until = CASE WHEN b.failures + :failures >= :threshold
                              THEN now() + make_interval(secs => :cooldown) END
        RETURNING open_until IS NOT NULL
    """)
    values = {"name": name, "failures": failures, "threshold": threshold, "cooldown": cooldown}
    return connection.execute(query, values).scalar_one()


def begin_trial(connection: Connection, name: str, *, cooldown: float) -> None:
    """Somebody has gone to look: nobody else does for another cool-down, whatever becomes of it."""
    query = text("""
        UPDATE circuit_breakers SET open_until = now() + make_interval(secs => :cooldown), updated_at = now()
        WHERE name = :name
    """)
    connection.execute(query, {"name": name, "cooldown": cooldown})


def succeeded(connection: Connection, name: str) -> None:
    """The other side answers: closed, and the count starts again."""
    query = text("""
        UPDATE circuit_breakers SET failures = 0, open_until = NULL, updated_at = now()
        WHERE name = :name AND failures > 0
    """)
    connection.execute(query, {"name": name})
