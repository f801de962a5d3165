"""Circuit breakers that every process sees, and what the latest answers were charged to."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, text

PRODUCT_SERVER = "product_server"
# Whether a row fails alone is all that is asked of them.
MOST_FAILED_ROWS = 2


@dataclass(frozen=True, slots=True)
class Breaker:
    """Whether calls are stopped and why, and what is known of the other side."""

    # Seconds until the next trial, 0 where one is due; None where calls are not stopped.
    trial_in: float | None = None
    # The keyed hash of the credential that was refused; None where that is not the reason.
    refused_credential: str | None = None
    # When a row was last answered well, and the rows that were not since then.
    answered_at: datetime | None = None
    failed_rows: frozenset[UUID] = frozenset()

    def trial_in_with(self, credential: str) -> float | None:
        """The same for a caller with this credential: another one than was refused is tried at once."""
        if self.refused_credential is not None and self.refused_credential != credential:
            return 0.0
        return self.trial_in


def find(connection: Connection, name: str) -> Breaker:
    """The breaker as it is now."""
    query = text("""
        SELECT extract(epoch FROM open_until - now()) AS seconds, refused_credential, answered_at, failed_rows
        FROM circuit_breakers WHERE name = :name
    """)
    row = connection.execute(query, {"name": name}).one_or_none()
    if row is None:
        return Breaker()
    trial_in = None if row.seconds is None else max(0.0, float(row.seconds))
    return Breaker(trial_in, row.refused_credential, row.answered_at, frozenset(row.failed_rows))


def record_failures(
    connection: Connection,
    name: str,
    *,
    failures: int,
    threshold: int,
    cooldown: float,
    rows: Collection[UUID] = (),
    trial: bool = False,
) -> bool:
    """Add failures in a row; at the threshold the breaker opens, or stays open for another cool-down.

    A trial says for how long from now on; others that were under way never shorten it.
    """
    query = text("""
        INSERT INTO circuit_breakers AS b (name, failures, failed_rows, open_until)
        VALUES (:name, :failures, CAST(:rows AS uuid[]),
                CASE WHEN :failures >= :threshold THEN now() + make_interval(secs => :cooldown) END)
        ON CONFLICT (name) DO UPDATE
        SET failures = b.failures + :failures, updated_at = now(),
            failed_rows = ARRAY(SELECT DISTINCT r FROM unnest(b.failed_rows || excluded.failed_rows) AS r LIMIT :most),
            open_until = CASE WHEN b.failures + :failures >= :threshold OR b.open_until IS NOT NULL
                              THEN greatest(CASE WHEN NOT :trial THEN b.open_until END,
                                            now() + make_interval(secs => :cooldown)) END
        RETURNING open_until IS NOT NULL
    """)
    values = {"name": name, "failures": failures, "threshold": threshold, "cooldown": cooldown, "trial": trial}
    return connection.execute(query, values | {"rows": list(rows), "most": MOST_FAILED_ROWS}).scalar_one()


def record_charged(connection: Connection, name: str, rows: Collection[UUID]) -> None:
    """Rows that failed by their own fault: another row that fails now is not alone any more."""
    query = text("""
        INSERT INTO circuit_breakers AS b (name, failed_rows) VALUES (:name, CAST(:rows AS uuid[]))
        ON CONFLICT (name) DO UPDATE
        SET updated_at = now(),
            failed_rows = ARRAY(SELECT DISTINCT r FROM unnest(b.failed_rows || excluded.failed_rows) AS r LIMIT :most)
    """)
    connection.execute(query, {"name": name, "rows": list(rows), "most": MOST_FAILED_ROWS})


def record_refusal(connection: Connection, name: str, *, credential: str, pause: float, rows: Collection[UUID]) -> None:
    """The credential is not accepted: everything stops until it is tried again, or is another one."""
    query = text("""
        INSERT INTO circuit_breakers AS b (name, failed_rows, open_until, refused_credential)
        VALUES (:name, CAST(:rows AS uuid[]), now() + make_interval(secs => :pause), :credential)
        ON CONFLICT (name) DO UPDATE
        SET updated_at = now(), open_until = excluded.open_until, refused_credential = excluded.refused_credential,
            failed_rows = ARRAY(SELECT DISTINCT r FROM unnest(b.failed_rows || excluded.failed_rows) AS r LIMIT :most)
    """)
    values = {"name": name, "credential": credential, "pause": pause, "rows": list(rows), "most": MOST_FAILED_ROWS}
    connection.execute(query, values)


def begin_trial(connection: Connection, name: str, *, cooldown: float, credential: str) -> None:
    """A trial is under way: no other one starts for another cool-down, whatever its result."""
    query = text("""
        UPDATE circuit_breakers
        SET open_until = now() + make_interval(secs => :cooldown), updated_at = now(),
            refused_credential = CASE WHEN refused_credential IS NOT NULL THEN :credential END
        WHERE name = :name
    """)
    connection.execute(query, {"name": name, "cooldown": cooldown, "credential": credential})


def record_answer(connection: Connection, name: str, *, after_failure: bool = False) -> None:
    """The other side answers well: closed, and the count starts again.

    A failure that is written in this transaction began with it: `after_failure` says that this answer came later.
    """
    query = text("""
        INSERT INTO circuit_breakers AS b (name, answered_at)
        VALUES (:name, now() + make_interval(secs => CASE WHEN :after_failure THEN 0.000001 ELSE 0 END))
        ON CONFLICT (name) DO UPDATE
        SET failures = 0, failed_rows = '{}', answered_at = excluded.answered_at, open_until = NULL,
            refused_credential = NULL, updated_at = now()
    """)
    connection.execute(query, {"name": name, "after_failure": after_failure})
