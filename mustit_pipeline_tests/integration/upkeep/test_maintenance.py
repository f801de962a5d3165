"""A night's housekeeping: what goes, what stays, and what a dry run says."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import text

from mustit_pipeline.catalog.sql import retention
from mustit_pipeline.crawling.sql import slices, task_months
from mustit_pipeline.crawling.sql.slices import EndedSlice
from mustit_pipeline.crawling.steering import open_or_join, resume
from mustit_pipeline.domain.errors import Conflict
from mustit_pipeline.domain.states import ExecutionStatus, RawStatus, SliceOutcome, TaskStatus
from mustit_pipeline.domain.values import ExecutionId, SellerId
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.settings import Settings
from mustit_pipeline.upkeep import maintenance
from mustit_pipeline.upkeep.maintenance import Progress, oldest_kept, run_alone
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.integration.crawls import once_before, register
from mustit_pipeline_tests.integration.rows import SELLER, add_execution, add_task, ground

# So few rows in a transaction that several are needed.
maintain = partial(maintenance.maintain, batch=2)
NOW = datetime(2026, 11, 20, 18, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture
def settings(make_settings: MakeSettings) -> Settings:
    return make_settings(raw_retention_days=90, raw_unchanged_days=7)


def months(database: Database) -> list[date]:
    with database.reading() as connection:
        return [one.month for one in task_months.partitions(connection)]


def scalars(database: Database, query: str, **values: Any) -> list[Any]:
    with database.reading() as connection:
        return list(connection.execute(text(query), values).scalars())


def body(
    database: Database,
    item_no: int | None,
    age_days: float,
    *,
    content: str | None = "x",
    status: RawStatus = RawStatus.PROCESSED,
    source: str = "PRODUCT_DETAIL",
    page_no: int | None = None,
    seller: str = SELLER,
) -> int:
    with database.transaction() as connection:
        return connection.execute(
            text("""
                INSERT INTO product_raw_data (seller_id, execution_id, task_id, source, item_no, page_no, body,
                                              content_hash, status, fetched_at)
                VALUES (:seller, gen_random_uuid(), gen_random_uuid(), :source, :item, :page, '{}', :content, :status,
                        :at)
                RETURNING raw_id
            """),
            {
                "seller": seller,
                "source": source,
                "item": item_no,
                "page": page_no,
                "content": content,
                "status": status.value,
                "at": NOW - age_days * DAY,
            },
        ).scalar_one()


def bodies(database: Database) -> set[int]:
    return set(scalars(database, "SELECT raw_id FROM product_raw_data"))


@pytest.mark.parametrize(
    ("kept", "oldest"), [(1, date(2026, 10, 1)), (3, date(2026, 8, 1)), (10, date(2026, 1, 1)), (11, date(2025, 12, 1))]
)
def test_the_running_month_and_so_many_before_it_are_kept(kept: int, oldest: date) -> None:
    assert oldest_kept(NOW, kept) == oldest


def test_months_are_made_ahead_and_a_second_time_there_is_nothing_to_do(database: Database, settings: Settings) -> None:
    assert maintain(database, settings, NOW, dry_run=True).months_added == ["2026-11", "2026-12", "2027-01"]
    assert months(database) == []

    assert maintain(database, settings, NOW).months_added == ["2026-11", "2026-12", "2027-01"]

    assert months(database) == [date(2026, 11, 1), date(2026, 12, 1), date(2027, 1, 1)]
    assert maintain(database, settings, NOW).months_added == []


def test_tasks_that_came_before_their_month_are_moved_into_it(database: Database, settings: Settings) -> None:
    home = replace(ground(database).home, task_month=date(2027, 5, 1))
    with database.transaction() as connection:
        tasks = {add_task(connection, home, TaskStatus.PUBLISHED, item) for item in (1, 2, 3)}
    assert scalars(database, "SELECT count(*) FROM crawler_tasks_default") == [3]

    done = maintain(database, settings, NOW)

    assert done.tasks_moved == 3
    assert "2027-05" in done.months_added
    assert scalars(database, "SELECT count(*) FROM crawler_tasks_default") == [0]
    assert set(scalars(database, "SELECT task_id FROM crawler_tasks_2027_05")) == tasks
    plain, moved = (
        scalars(
            database,
            "SELECT count(*) FROM pg_index WHERE indrelid = CAST(:name AS regclass) AND indisvalid",
            name=name,
        )
        for name in ("crawler_tasks_2026_11", "crawler_tasks_2027_05")
    )
    assert plain == moved
    with database.transaction() as connection:
        add_task(connection, home, TaskStatus.PUBLISHED, 4)
    assert scalars(database, "SELECT count(*) FROM crawler_tasks_2027_05") == [4]


@contextmanager
def old_month(database: Database, status: ExecutionStatus) -> Generator[date]:
    """A month that is old enough to go, with a crawl in that state and a task that has not ended."""
    standing = ground(database, ExecutionStatus.COMPLETED)
    month = date(2026, 5, 1)
    with database.transaction() as connection:
        task_months.ensure_month(connection, month)
        execution = add_execution(connection, status)
        connection.execute(
            text("UPDATE crawling_schedule_executions SET task_month = :month WHERE execution_id = :id"),
            {"month": month, "id": execution},
        )
        home = replace(standing.home, execution_id=execution, task_month=month)
        add_task(connection, home, TaskStatus.COMPLETED, 1)
        add_task(connection, home, TaskStatus.PUBLISHED, 2)
    yield month


def test_an_old_month_goes_as_a_whole_and_its_crawls_stay_with_outcomes_that_add_up(
    database: Database, settings: Settings
) -> None:
    with old_month(database, ExecutionStatus.FAILED) as month:
        assert maintain(database, settings, NOW, dry_run=True).months_dropped == ["2026-05"]
        assert month in months(database)

        assert maintain(database, settings, NOW).months_dropped == ["2026-05"]

    assert month not in months(database)
    assert date(2026, 11, 1) in months(database)
    # A resumed crawl finds nothing left to do, instead of tasks that are nowhere.
    with database.reading() as connection:
        query = (
            "SELECT total_tasks, completed_tasks, failed_tasks FROM crawling_schedule_executions WHERE total_tasks > 0"
        )
        assert connection.execute(text(query)).all() == [(2, 1, 1)]


@pytest.mark.parametrize("status", [ExecutionStatus.PENDING, ExecutionStatus.RUNNING, ExecutionStatus.PAUSED])
def test_a_month_with_an_open_crawl_is_kept_and_said_so(
    database: Database, settings: Settings, status: ExecutionStatus
) -> None:
    with old_month(database, status) as month:
        done = maintain(database, settings, NOW)

    assert (done.months_dropped, done.months_left) == ([], {"2026-05": "1 crawls of it are still open"})
    assert month in months(database)


def test_a_month_whose_crawl_is_resumed_while_it_is_about_to_go_stays(database: Database, settings: Settings) -> None:
    with old_month(database, ExecutionStatus.FAILED) as month:
        (execution,) = scalars(
            database, "SELECT execution_id FROM crawling_schedule_executions WHERE status = 'FAILED'"
        )
        with once_before(database, "SET failed_tasks", lambda: resume(database, ExecutionId(execution))):
            done = maintain(database, settings, NOW)

    assert (done.months_dropped, done.months_left) == ([], {"2026-05": "a crawl of it was resumed"})
    assert month in months(database)
    assert scalars(database, "SELECT status FROM crawler_tasks_2026_05 ORDER BY 1") == ["COMPLETED", "PUBLISHED"]


def test_a_task_table_that_is_locked_is_left_for_the_next_night(
    database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_months, "LOCK_TIMEOUT", "100ms")
    with old_month(database, ExecutionStatus.COMPLETED) as month, database.transaction() as connection:
        connection.execute(text("SELECT count(*) FROM crawler_tasks"))
        done = maintain(database, settings, NOW)

    assert done.months_left.keys() == {"2026-05", "2026-12", "2027-01"}
    assert "too long" in done.months_left["2026-05"]
    assert month in months(database)
    assert maintain(database, settings, NOW).months_left == {}
    assert month not in months(database)


def test_repeated_bodies_go_after_a_week_and_the_newest_of_each_call_stays(
    database: Database, settings: Settings
) -> None:
    register(database, SELLER)
    repeated = [body(database, 1, 30), body(database, 1, 20), body(database, 1, 10)]
    recent = body(database, 1, 3)
    changed = [body(database, 2, 30, content="old"), body(database, 2, 20, content="new")]
    unhashed = [body(database, 3, 30, content=None), body(database, 3, 20, content=None)]
    other_source = body(database, 1, 30, source="PRODUCT_OPTION")
    pages = [body(database, None, 30, source="MINISHOP", page_no=n, content="same") for n in (0, 1)]

    dry = maintain(database, settings, NOW, dry_run=True)
    assert (dry.bodies_unchanged, dry.bodies_aged) == (3, 0)
    assert bodies(database) == {*repeated, recent, *changed, *unhashed, other_source, *pages}

    done = maintain(database, settings, NOW)

    assert (done.bodies_unchanged, done.bodies_aged) == (3, 0)
    assert bodies(database) == {recent, *changed, *unhashed, other_source, *pages}


def test_old_bodies_go_whatever_they_say_but_not_what_a_replay_needs(database: Database, settings: Settings) -> None:
    register(database, SELLER, "other")
    old = [body(database, 1, 200, content=f"content {n}") for n in range(5)]
    newest_processed = body(database, 1, 150, content="newest")
    failed = body(database, 1, 100, status=RawStatus.FAILED)
    pending = body(database, 1, 195, status=RawStatus.PENDING)
    others = body(database, 1, 300, seller="other")
    told: list[Progress] = []

    done = maintain(database, settings, NOW, tell=told.append)

    assert (done.bodies_aged, done.bodies_unchanged) == (5, 0)
    assert bodies(database) == {newest_processed, failed, pending, others}
    assert not bodies(database) & set(old)
    # Batches of two.
    assert [at.removed for at in told] == [2, 4, 5, 5, 5]
    assert told[-1] == Progress(2, 2, 5)
    assert maintain(database, settings, NOW).bodies_aged == 0


def test_old_bodies_that_failed_go_once_something_newer_came_of_the_same_call(
    database: Database, settings: Settings
) -> None:
    """A product whose bodies are refused in every crawl would fill the table otherwise."""
    register(database, SELLER)
    refused = [body(database, 1, age, status=RawStatus.FAILED, content=None) for age in (200, 150, 100)]
    recent = [body(database, 1, age, status=RawStatus.FAILED, content=None) for age in (80, 10)]
    overtaken = body(database, 2, 120, status=RawStatus.FAILED, content=None)
    newer = body(database, 2, 110)
    last_word = body(database, 3, 300, status=RawStatus.FAILED, content=None)

    done = maintain(database, settings, NOW)

    assert (done.bodies_aged, done.bodies_unchanged) == (len([*refused, overtaken]), 0)
    assert bodies(database) == {*recent, newer, last_word}


def test_a_night_looks_again_only_where_a_body_has_come_or_grown_old(database: Database, settings: Settings) -> None:
    """A seller's bodies are many, and of most sellers nothing has changed since the night before."""
    register(database, SELLER, "other")
    first = body(database, 1, 5)
    body(database, 2, 20)
    body(database, 1, 20, seller="other")
    overtaken = body(database, 3, 88, content="old")
    body(database, 3, 87, content="new")

    def night(days: float) -> list[int]:
        """How many sellers were looked at, and how many bodies went."""
        told: list[Progress] = []
        done = maintain(database, settings, NOW + days * DAY, tell=told.append)
        return [len(told) - done.bodies_aged - done.bodies_unchanged, done.bodies_aged + done.bodies_unchanged]

    assert night(0) == [2, 0]
    assert night(0.5) == [0, 0]
    assert night(2.5) == [1, 1], "a body is 90 days old, and one a week"
    assert overtaken not in bodies(database)
    body(database, 1, -2.6)
    assert night(2.7) == [1, 1], "the older one is only repeated now"
    assert first not in bodies(database)
    assert night(2.8) == [0, 0]


def test_a_shorter_retention_is_followed_the_next_night(database: Database, make_settings: MakeSettings) -> None:
    register(database, SELLER)
    repeated = [body(database, 1, age) for age in (20, 5, 4)]
    assert maintain(database, make_settings(raw_unchanged_days=7), NOW).bodies_unchanged == 1

    assert maintain(database, make_settings(raw_unchanged_days=3), NOW).bodies_unchanged == 1
    assert bodies(database) == {repeated[-1]}


def test_a_body_that_was_opened_for_a_replay_meanwhile_is_not_removed(database: Database) -> None:
    register(database, SELLER)
    opened = body(database, 1, 200, status=RawStatus.PENDING)

    assert list(retention.delete_bodies(database, [opened], 10)) == [0]
    assert bodies(database) == {opened}


def test_bookings_that_no_window_reaches_go_in_batches(database: Database, make_settings: MakeSettings) -> None:
    settings = make_settings(window_seconds=3600)
    with database.transaction() as connection:
        for hours in (0, 1, 2.9, 3.1, 5, 20, 100):
            connection.execute(
                text("""INSERT INTO agent_bookings (booking_id, agent_id, booked_at, expires_at)
                        VALUES (:id, :id, :at, :at)"""),
                {"id": uuid4(), "at": NOW - timedelta(hours=hours)},
            )

    assert maintain(database, settings, NOW, dry_run=True).bookings == 4
    assert maintain(database, settings, NOW).bookings == 4
    assert scalars(database, "SELECT count(*) FROM agent_bookings") == [3]


def test_alerts_that_are_over_and_old_samples_go_in_batches(database: Database, make_settings: MakeSettings) -> None:
    settings = make_settings(alert_retention_days=90, truth_retention_days=365)
    with database.transaction() as connection:
        for name, opened, ended in (
            ("a", 300, 91),
            ("b", 300, 95),
            ("c", 99, 98),
            ("late", 300, 89),
            ("open", 300, None),
        ):
            connection.execute(
                text("""INSERT INTO alerts (subject, kind, title, detail, opened_at, last_seen_at, ended_at)
                        VALUES (:name, 'RUN_FAILED', 't', 'd', :opened, :opened, :ended)"""),
                {"name": name, "opened": NOW - opened * DAY, "ended": None if ended is None else NOW - ended * DAY},
            )
        for item, age in enumerate((364, 366, 400, 500, None)):
            judged = None if age is None else NOW - age * DAY
            connection.execute(
                text("""INSERT INTO truth_samples (seller_id, item_no, verdict, sampled_at, judged_at)
                        VALUES ('dmont', :item, :verdict, :sampled, :judged)"""),
                {
                    "item": item,
                    "verdict": "OPEN" if judged is None else "EQUAL",
                    "sampled": NOW - 500 * DAY,
                    "judged": judged,
                },
            )

    dry = maintain(database, settings, NOW, dry_run=True)
    done = maintain(database, settings, NOW)

    assert (dry.alerts, dry.samples) == (done.alerts, done.samples) == (3, 3)
    assert scalars(database, "SELECT subject FROM alerts ORDER BY subject") == ["late", "open"]
    assert scalars(database, "SELECT item_no FROM truth_samples ORDER BY item_no") == [0, 4]


def test_only_one_maintenance_works_at_a_time(database: Database, settings: Settings) -> None:
    with run_alone(database), pytest.raises(Conflict) as refused:
        maintain(database, settings, NOW)
    assert refused.value.code == "CONFLICT_MAINTENANCE_RUNNING"

    maintain(database, settings, NOW)


def test_messages_are_known_for_longer_than_sqs_can_deliver_them_again(
    database: Database, make_settings: MakeSettings
) -> None:
    with database.transaction() as connection:
        for days in (1, 14, 29, 31, 40, 50):
            connection.execute(
                text("INSERT INTO trigger_messages (queue, message_id, received_at) VALUES ('q', :id, :at)"),
                {"id": str(days), "at": NOW - days * DAY},
            )
    settings = make_settings()

    dry, done = (maintain(database, settings, NOW, dry_run=dry) for dry in (True, False))

    assert dry.triggers == done.triggers == 3
    assert scalars(database, "SELECT message_id FROM trigger_messages ORDER BY received_at") == ["29", "14", "1"]


def test_what_slices_came_to_goes_with_the_log_lines_of_their_runs(
    database: Database, make_settings: MakeSettings
) -> None:
    register(database, "s")
    execution_id = open_or_join(database, SellerId("s"), triggered_by="test", now=NOW).stored.execution.id.value
    ages = (1, 14, 29, 31, 40, 50)
    with database.transaction() as connection:
        slices.record(
            connection,
            [EndedSlice(str(days), execution_id, SliceOutcome.CRASHED, NOW - days * DAY) for days in ages],
        )
    settings = make_settings(retention_batch=2, run_log_retention_days=30)

    dry, done = (maintain(database, settings, NOW, dry_run=dry) for dry in (True, False))

    assert dry.slices == done.slices == 3
    assert scalars(database, "SELECT run_id FROM crawling_slices ORDER BY ended_at") == ["29", "14", "1"]


def test_schedule_changes_go_once_they_are_over_and_those_that_wait_stay(
    database: Database, make_settings: MakeSettings
) -> None:
    register(database, "waits", "failed", "told", "told lately")
    with database.transaction() as connection:
        connection.execute(text("UPDATE scheduler_outbox SET created_at = :at"), {"at": NOW - 200 * DAY})
        ends = (("failed", "FAILED", None), ("told", "COMPLETED", 100), ("told lately", "COMPLETED", 80))
        for seller, status, age in ends:
            connection.execute(
                text("""UPDATE scheduler_outbox SET status = :status, completed_at = CAST(:at AS timestamptz)
                        WHERE schedule_id = (SELECT schedule_id FROM crawling_schedules WHERE seller_id = :seller)"""),
                {"status": status, "at": None if age is None else NOW - age * DAY, "seller": seller},
            )

    dry, done = (maintain(database, make_settings(), NOW, dry_run=dry) for dry in (True, False))

    assert dry.schedule_changes == done.schedule_changes == 1
    left = "SELECT seller_id FROM crawling_schedules JOIN scheduler_outbox USING (schedule_id) ORDER BY seller_id"
    assert scalars(database, left) == ["failed", "told lately", "waits"]


def test_audit_entries_ended_tokens_links_and_failed_logins_go_by_their_age(
    database: Database, make_settings: MakeSettings
) -> None:
    statements = (
        "INSERT INTO users (user_name, role) VALUES ('kim', 'admin')",
        """INSERT INTO audit_log (at, actor_kind, actor, action, target)
           SELECT CAST(:now AS timestamptz) - d * interval '1 day', 'cli', 'root', 'x', d
           FROM unnest(ARRAY[1, 364, 366, 400, 500]) d""",
        """INSERT INTO revoked_tokens (jti, expires_at)
           SELECT gen_random_uuid(), CAST(:now AS timestamptz) + m * interval '1 minute' FROM unnest(ARRAY[-1, 1]) m""",
        """INSERT INTO login_links (link_id, secret_hash, user_name, expires_at)
           SELECT m, '', 'kim', CAST(:now AS timestamptz) + m * interval '1 minute' FROM unnest(ARRAY[-1, 1]) m""",
        """INSERT INTO login_failures (account, address, failures, seen_at)
           SELECT d, '', 0, CAST(:now AS timestamptz) - d * interval '1 day' FROM unnest(ARRAY[29, 31]) d""",
    )
    with database.transaction() as connection:
        for statement in statements:
            connection.execute(text(statement), {"now": NOW} if ":now" in statement else {})
    settings = make_settings(retention_batch=2)

    dry, done = (maintain(database, settings, NOW, dry_run=dry) for dry in (True, False))

    assert (dry.audit_entries, dry.logins) == (done.audit_entries, done.logins) == (3, 3)
    assert scalars(database, "SELECT target FROM audit_log ORDER BY at") == ["364", "1"]
    assert scalars(database, "SELECT account FROM login_failures") == ["29"]
    assert scalars(database, "SELECT link_id FROM login_links") == ["1"]
    assert scalars(database, "SELECT count(*) FROM revoked_tokens") == [1]


def test_hours_of_tallies_go_after_a_year_and_what_they_add_up_to_stays(
    database: Database, make_settings: MakeSettings
) -> None:
    with database.transaction() as connection:
        connection.execute(
            text("""
                INSERT INTO tallies (subject, hour, labels, slot, number, seconds, buckets)
                SELECT 'CHANGE',
                       CASE WHEN d > 0 THEN CAST(:now AS timestamptz) - d * interval '1 day' ELSE 'infinity' END,
                       ARRAY['PRICE'], 0, d, 0, '{}'
                FROM unnest(ARRAY[0, 1, 365, 367, 500]) d
            """),
            {"now": NOW},
        )

    dry, done = (maintain(database, make_settings(), NOW, dry_run=dry) for dry in (True, False))

    assert dry.tallies == done.tallies == 2
    assert scalars(database, "SELECT number FROM tallies ORDER BY number") == [0, 1, 365]
