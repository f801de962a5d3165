"""Nightly maintenance of the business database: partitions ahead, and retention.

Vacuuming is left to autovacuum: a vacuum of our own would read whole indexes for the few rows of one night.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta

from psycopg.errors import LockNotAvailable
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from mustit_pipeline.access import audit, login
from mustit_pipeline.access.sql import audit_log, login_failures, login_links, tokens
from mustit_pipeline.agents.sql import agent_bookings
from mustit_pipeline.catalog.sql import retention
from mustit_pipeline.catalog.sql.retention import Night
from mustit_pipeline.crawling.sql import slices, task_months
from mustit_pipeline.domain.errors import Conflict
from mustit_pipeline.foundation.advisory_locks import Only
from mustit_pipeline.foundation.aging import Aged, count_aged, delete_aged
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.monitoring.sql import alerts, spot_checks
from mustit_pipeline.scheduling.sql import triggers
from mustit_pipeline.sellers.sql import scheduler_outbox
from mustit_pipeline.settings import Settings
from mustit_pipeline.tallies.sql import tallies

# Months of crawl tasks whose partitions are there in advance.
MONTHS_AHEAD = 2
# Rows that one transaction removes.
BATCH = 5000


@dataclass(frozen=True, slots=True)
class Maintained:
    """What was done, or would be in a dry run: months as `2026-11`, and rows by kind."""

    months_added: list[str]
    months_dropped: list[str]
    months_left: dict[str, str]
    tasks_moved: int
    bodies_aged: int
    bodies_unchanged: int
    bookings: int
    alerts: int
    samples: int
    triggers: int
    schedule_changes: int
    slices: int
    tallies: int
    logins: int
    audit_entries: int


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of the long part: examined sellers, of how many."""

    sellers: int
    total: int
    removed: int


Tell = Callable[[Progress], None]


@contextmanager
def run_alone(database: Database) -> Generator[None]:
    """Take the maintenance lock; a second maintenance is refused at once."""
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        taken = connection.execute(text("SELECT pg_try_advisory_lock(:key)"), {"key": Only.MAINTENANCE}).scalar_one()
        if not taken:
            raise Conflict(
                "CONFLICT_MAINTENANCE_RUNNING",
                korean="이미 유지보수 작업이 실행 중입니다",
                english="Another maintenance is running already: wait until it has ended",
            )
        try:
            yield
        finally:
            connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": Only.MAINTENANCE})


def maintain(
    database: Database,
    settings: Settings,
    now: datetime,
    *,
    dry_run: bool = False,
    tell: Tell | None = None,
    batch: int = BATCH,
) -> Maintained:
    """Do everything that is due, so many rows in a transaction; a dry run only says what that would be."""
    with run_alone(database):
        months = _Months()
        _make_months_ahead(database, now, months, dry_run=dry_run)
        _drop_months(database, settings, now, months, dry_run=dry_run)
        aged, unchanged = _remove_bodies(database, settings, now, batch, dry_run=dry_run, tell=tell)
        # The pool itself prunes its bookings while it works; twice its window is far beyond anything that it counts.
        unreached = now - timedelta(seconds=2 * settings.window_seconds + 3600)
        ages = (
            (agent_bookings.AGED, unreached),
            (alerts.AGED, now - timedelta(days=settings.alert_retention_days)),
            (spot_checks.AGED, now - timedelta(days=settings.truth_retention_days)),
            (triggers.AGED, now - timedelta(days=settings.trigger_retention_days)),
            (scheduler_outbox.AGED, now - timedelta(days=settings.schedule_retention_days)),
            (slices.AGED, now - timedelta(days=settings.run_log_retention_days)),
            (tallies.AGED, now - timedelta(days=tallies.KEPT_DAYS)),
            (audit_log.AGED, now - timedelta(days=audit.KEPT_DAYS)),
            (tokens.AGED, now),
            (login_links.AGED, now),
            (login_failures.AGED, now - timedelta(days=login.FAILURES_KEPT_DAYS)),
        )
        bookings, old_alerts, samples, old_triggers, changes, old_slices, old_tallies, audit_entries, *logins = (
            _remove_aged(database, *age, batch, dry_run=dry_run) for age in ages
        )
    return Maintained(
        [f"{month:%Y-%m}" for month in sorted(months.added)],
        [f"{month:%Y-%m}" for month in months.dropped],
        {f"{month:%Y-%m}": why for month, why in sorted(months.left.items())},
        months.moved,
        aged,
        unchanged,
        bookings,
        old_alerts,
        samples,
        old_triggers,
        changes,
        old_slices,
        old_tallies,
        sum(logins),
        audit_entries,
    )


def oldest_kept(now: datetime, months: int) -> date:
    """The first month whose tasks are kept: the current one and `months` before it."""
    first = now.date().replace(day=1)
    return date((first.year * 12 + first.month - 1 - months) // 12, (first.month - 1 - months) % 12 + 1, 1)


@dataclass(slots=True)
class _Months:
    added: list[date] = field(default_factory=list[date])
    dropped: list[date] = field(default_factory=list[date])
    left: dict[date, str] = field(default_factory=dict[date, str])
    moved: int = 0

    @contextmanager
    def trying(self, month: date) -> Generator[None]:
        """A month that is locked by a long transaction is left for the next night."""
        try:
            yield
        except OperationalError as error:
            if not isinstance(error.orig, LockNotAvailable):
                raise
            self.left[month] = "the task table was locked for too long; the next night tries again"


def _make_months_ahead(database: Database, now: datetime, months: _Months, *, dry_run: bool) -> None:
    wanted = [now.date().replace(day=1)]
    for _ in range(MONTHS_AHEAD):
        wanted.append(task_months.following(wanted[-1]))
    with database.reading() as connection:
        there = {one.month for one in task_months.partitions(connection)}
        early = task_months.months_in_default(connection)
    if dry_run:
        months.added.extend({*early, *wanted} - there)
        return
    for month in early:
        with months.trying(month), database.transaction() as connection:
            months.moved += task_months.move_from_default(connection, month)
            months.added.append(month)
    for month in (month for month in wanted if month not in there and month not in early):
        with months.trying(month), database.transaction() as connection:
            task_months.be_brief(connection)
            task_months.ensure_month(connection, month)
            months.added.append(month)


def _drop_months(database: Database, settings: Settings, now: datetime, months: _Months, *, dry_run: bool) -> None:
    oldest = oldest_kept(now, settings.task_retention_months)
    with database.reading() as connection:
        old = [one.month for one in task_months.partitions(connection) if one.month < oldest]
        held = {month: n for month in old if (n := task_months.open_executions(connection, month))}
    for month in old:
        if month in held:
            months.left[month] = f"{held[month]} crawls of it are still open"
        elif dry_run:
            months.dropped.append(month)
        else:
            with months.trying(month), database.transaction() as connection:
                if task_months.drop_month(connection, month):
                    months.dropped.append(month)
                else:
                    months.left[month] = "a crawl of it was resumed"


def _remove_bodies(
    database: Database, settings: Settings, now: datetime, batch: int, *, dry_run: bool, tell: Tell | None
) -> tuple[int, int]:
    night = Night(
        now,
        unchanged_before=now - timedelta(days=settings.raw_unchanged_days),
        aged_before=now - timedelta(days=settings.raw_retention_days),
    )
    with database.reading() as connection:
        sellers = retention.sellers_to_examine(connection, night)
    aged = unchanged = removed = 0
    examined: list[str] = []
    for done, seller_id in enumerate(sellers):
        with database.reading() as connection:
            expired = retention.expired_bodies(connection, seller_id, night)
        aged, unchanged = aged + expired.aged, unchanged + expired.unchanged
        batches = () if dry_run else retention.delete_bodies(database, expired.raw_ids, batch)
        for gone in batches:
            removed += gone
            if tell is not None:
                tell(Progress(done, len(sellers), removed))
        if tell is not None:
            tell(Progress(done + 1, len(sellers), removed))
        if expired.all_of_them:
            examined.append(seller_id)
    if examined and not dry_run:
        with database.transaction() as connection:
            retention.record_examined(connection, examined, night)
    return aged, unchanged


def _remove_aged(database: Database, aged: Aged, before: datetime, batch: int, *, dry_run: bool) -> int:
    if dry_run:
        with database.reading() as connection:
            return count_aged(connection, aged, before)
    return delete_aged(database, aged, before, batch)
