"""The schema: upgraded once for many callers, refused where it does not fit, and just what the code believes."""

import subprocess
import sys
from collections.abc import Generator
from contextlib import suppress
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from sqlalchemy import CheckConstraint, Constraint, inspect, make_url, text
from sqlalchemy.dialects.postgresql.base import PGDialect
from sqlalchemy.exc import IntegrityError

import mustit_pipeline.access.sql.tables
import mustit_pipeline.agents.sql.tables
import mustit_pipeline.catalog.sql.tables
import mustit_pipeline.crawling.sql.tables
import mustit_pipeline.delivery.sql.tables
import mustit_pipeline.monitoring.sql.tables
import mustit_pipeline.outbox.sql.tables
import mustit_pipeline.scheduling.sql.tables
import mustit_pipeline.sellers.sql.tables
import mustit_pipeline.tallies.sql.tables  # noqa: F401  (together they complete the metadata)
from mustit_pipeline.crawling.planning import plan_products
from mustit_pipeline.crawling.sql import task_months, tasks
from mustit_pipeline.domain.states import ExecutionStatus, OutboxStatus, TaskStatus, TaskType
from mustit_pipeline.foundation import schema
from mustit_pipeline.foundation.database import Database, make_engine, open_database
from mustit_pipeline.foundation.schema import SchemaMismatch
from mustit_pipeline.foundation.tables import metadata
from mustit_pipeline.marketplace.endpoints import Endpoints
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.integration.crawls import register
from mustit_pipeline_tests.integration.foundation.upgrading import migrate
from mustit_pipeline_tests.integration.rows import MONTH, add_execution, add_outbox, add_task, ground


@pytest.fixture
def empty(empty_database_url: str) -> Generator[Database]:
    opened = Database(make_engine(make_url(empty_database_url)))
    yield opened
    opened.close()


def test_an_upgrade_that_is_repeated_finds_nothing_to_do(empty: Database) -> None:
    with empty.transaction() as connection:
        assert schema.upgrade(connection).current is None
    with empty.transaction() as connection:
        assert schema.upgrade(connection).is_current
        schema.require_current(connection)


def test_schedule_changes_of_before_are_numbered_as_they_were_made(database: Database) -> None:
    """Not as they lie in their file: there the newer one may come first."""
    register(database, "newest", "middle", "oldest")
    config = Config()
    config.set_main_option("script_location", str(Path(schema.__file__).parent / "migrations"))
    with database.transaction() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "0007")
        connection.execute(text("UPDATE scheduler_outbox SET created_at = now() - random() * interval '1 day'"))
        connection.execute(text("UPDATE scheduler_outbox SET created_at = now() WHERE payload LIKE '%newest%'"))
        schema.upgrade(connection)
    register(database, "after")

    with database.reading() as connection:
        query = text("SELECT seq FROM scheduler_outbox ORDER BY created_at")
        numbers = connection.execute(query).scalars().all()
        newest = text("SELECT max(seq) FROM scheduler_outbox WHERE payload LIKE '%after%'")
        assert (numbers, connection.execute(newest).scalar_one()) == ([1, 2, 3, 4], 4)


def test_two_processes_that_upgrade_at_once_both_succeed(empty_database_url: str, empty: Database) -> None:
    command_line = [sys.executable, "-m", "mustit_pipeline_tests.integration.foundation.upgrading", empty_database_url]
    both = [subprocess.Popen(command_line, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = sorted(process.communicate(timeout=60)[0].strip() for process in both)
    assert [process.returncode for process in both] == [0, 0]
    assert said == sorted(["None", schema.expected_revision()])
    with empty.reading() as connection:
        schema.require_current(connection)


def test_tasks_of_before_stay_one_per_call_whichever_month_they_lie_in(
    database_url: str, database: Database, make_settings: MakeSettings
) -> None:
    """Partitions come in three ways: made ahead, filled from the default one, and the default one itself."""
    moved, left = date(2026, 12, 1), date(2027, 1, 1)
    standing = ground(database)
    homes = [replace(standing.home, task_month=month) for month in (MONTH, moved, left)]
    with database.transaction() as connection:
        migrate(connection, "0008", down=True)
        for home in homes:
            add_task(connection, home, TaskStatus.PUBLISHED, 7)
        task_months.move_from_default(connection, moved)
    command_line = [sys.executable, "-m", "mustit_pipeline_tests.integration.foundation.upgrading", database_url]
    both = [subprocess.Popen(command_line, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = sorted(process.communicate(timeout=60)[0].strip() for process in both)
    assert said == ["0008", schema.expected_revision()]

    endpoints = Endpoints.from_settings(make_settings())
    with database.transaction() as connection:
        known, new = (plan_products(endpoints, {item: 1}, [TaskType.PRODUCT_OPTION]) for item in (7, 8))
        assert [tasks.add(connection, home, known) for home in homes] == [0, 0, 0]
        assert [tasks.add(connection, home, new) for home in homes] == [1, 1, 1]
    by_month = text("SELECT count(*) FROM pg_indexes WHERE indexdef LIKE '%(task_month, execution_id%'")
    with database.reading() as connection:
        assert connection.execute(by_month).scalar_one() == 0


def test_products_that_are_held_at_an_upgrade_stay_held_unless_a_later_crawl_has_seen_them(database: Database) -> None:
    before = ground(database, ExecutionStatus.COMPLETED).home
    with database.transaction() as connection:
        migrate(connection, "0011", down=True)
    executions: list[Any] = [before.execution_id]
    for _ in range(2):
        # Each in a moment of its own.
        with database.transaction() as connection:
            executions.append(add_execution(connection, ExecutionStatus.COMPLETED))
    old, judged, new = executions
    seen = {1: old, 2: judged, 3: new, 4: old}
    with database.transaction() as connection:
        for item, execution in seen.items():
            connection.execute(
                text(
                    "INSERT INTO products (seller_id, item_no, last_seen_execution_id) VALUES (:seller, :item, :seen)"
                ),
                {"seller": before.seller_id, "item": item, "seen": execution},
            )
        connection.execute(
            text("""
                INSERT INTO deletion_holds (seller_id, execution_id, status, live_count, item_nos)
                VALUES (:seller, :judged, 'OPEN', 9, ARRAY[1, 2, 3])
            """),
            {"seller": before.seller_id, "judged": judged},
        )
        schema.upgrade(connection)
        unseen = text("SELECT item_no FROM products WHERE last_seen_execution_id IS NULL")
        assert connection.execute(unseen).scalars().all() == [1]


def test_a_missing_or_older_schema_is_refused_with_the_command_that_helps(
    empty: Database, empty_database_url: str, make_settings: MakeSettings
) -> None:
    settings = make_settings(database_url=empty_database_url)
    with pytest.raises(SchemaMismatch, match=r"no schema yet.*`mustit db upgrade`"):
        open_database(settings)
    with empty.transaction() as connection:
        migrate(connection, "0001")
    with pytest.raises(SchemaMismatch, match=r"older schema 0001.*`mustit db upgrade`"):
        open_database(settings)


def test_a_newer_schema_is_refused_and_never_touched(database: Database, make_settings: MakeSettings) -> None:
    with database.transaction() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(SchemaMismatch, match=r"9999.*newer than this code"):
        open_database(make_settings())
    with database.transaction() as connection, pytest.raises(SchemaMismatch, match=r"newer than this code"):
        schema.upgrade(connection)


def test_the_migrations_make_exactly_the_tables_that_the_code_believes_in(database: Database) -> None:
    def ours(_: object, name: str | None, kind: str, *__: object) -> bool:
        return not (kind == "table" and str(name).startswith("crawler_tasks_"))

    options: dict[str, Any] = {"compare_type": True, "compare_server_default": True, "include_object": ours}
    with database.reading() as connection:
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, metadata) == []
        checks = text("""
            SELECT conname FROM pg_constraint JOIN pg_class t ON t.oid = conrelid
            WHERE contype = 'c' AND NOT t.relispartition AND t.relnamespace = 'public'::regnamespace
        """)
        made = set(connection.execute(checks).scalars())
    believed = {
        str(conv) for table in metadata.tables.values() for conv in map(_name, table.constraints) if conv is not None
    }
    assert made == believed


def _name(constraint: Constraint) -> str | None:
    if not isinstance(constraint, CheckConstraint):
        return None
    return PGDialect().identifier_preparer.format_constraint(constraint)


def test_the_schema_can_be_taken_down_and_built_again(database: Database) -> None:
    with database.transaction() as connection:
        migrate(connection, "base", down=True)
        assert set(inspect(connection).get_table_names()) <= {"alembic_version"}
    with database.transaction() as connection:
        schema.upgrade(connection)
        schema.require_current(connection)


def test_the_indexes_that_were_asked_for_are_there(database: Database) -> None:
    wanted = {
        "sellers": [["status"]],
        "crawler_tasks": [["execution_id", "priority", "seq"]],
        "products": [["item_no"]],
        "product_outbox": [["status", "created_at"]],
        "scheduler_outbox": [["status", "created_at"]],
        "crawling_schedule_executions": [["seller_id", "started_at"]],
    }
    with database.reading() as connection:
        for table, indexes in wanted.items():
            there = [index["column_names"] for index in inspect(connection).get_indexes(table)]
            found = [columns for columns in indexes if any(one[: len(columns)] == columns for one in there)]
            assert found == indexes, table


REFUSED = {
    "a seller in an unknown state": "UPDATE sellers SET status = 'GONE'",
    "a blank seller": "INSERT INTO sellers "
    "(seller_id, name, status, interval_amount, interval_unit) VALUES (' ', 'n', 'ACTIVE', 1, 'DAYS')",
    "an interval of 31 days": "UPDATE sellers SET interval_amount = 31",
    "an interval of 24 hours": "UPDATE sellers SET interval_amount = 24, interval_unit = 'HOURS'",
    "a schedule in an unknown state": "UPDATE crawling_schedules SET status = 'GONE'",
    "an execution in an unknown state": "UPDATE crawling_schedule_executions SET status = 'GONE'",
    "more outcomes than tasks": "UPDATE crawling_schedule_executions SET failed_tasks = total_tasks + 1",
    "a limit of nothing": "UPDATE crawling_schedule_executions SET product_limit = 0",
    "a task in an unknown state": "UPDATE crawler_tasks SET status = 'GONE'",
    "a lease without its state": "UPDATE crawler_tasks SET lease_owner = 'x' WHERE status = 'PUBLISHED'",
    "a state without its lease": "UPDATE crawler_tasks SET status = 'IN_PROGRESS' WHERE status = 'PUBLISHED'",
    "a listing task of an item": "UPDATE crawler_tasks SET task_type = 'MINISHOP'",
    "the same call twice": "UPDATE crawler_tasks SET task_key = 'same'",
    "an item number of 0": "UPDATE products SET item_no = 0",
    "a delivered version that never was": "UPDATE products SET delivered_version = version + 1",
    "the same product twice": "UPDATE products SET item_no = 5",
    "a version 0 in the history": "UPDATE product_change_sets SET version = 0",
    "an outbox row in an unknown state": "UPDATE product_outbox SET status = 'GONE'",
    "the same version twice": "UPDATE product_outbox SET version = 9, item_no = 1",
    "the same key twice": "UPDATE product_outbox SET idempotency_key = 'same'",
    "a sender without its state": "UPDATE product_outbox SET lease_owner = 'x' WHERE status = 'WAITING'",
    "a parked message of a crawl": "INSERT INTO trigger_messages (queue, message_id, execution_id, reason, body, "
    "received_at) SELECT 'q', 'm', execution_id, 'NOT_JSON', '', now() FROM crawling_schedule_executions",
    "a message parked without its body": "INSERT INTO trigger_messages (queue, message_id, reason, received_at) "
    "VALUES ('q', 'm', 'NOT_JSON', now())",
    "a schedule message that is no JSON": "UPDATE scheduler_outbox SET payload = '{'",
}


def test_the_tables_refuse_rows_that_must_not_be(database: Database) -> None:
    standing = ground(database)
    with database.transaction() as connection:
        add_task(connection, standing.home, TaskStatus.PUBLISHED, 1)
        add_task(connection, standing.home, TaskStatus.PUBLISHED, 2)
        add_outbox(connection, OutboxStatus.WAITING, 1)
        add_outbox(connection, OutboxStatus.WAITING, 2)
    for what, statement in REFUSED.items():
        taken = None
        with suppress(IntegrityError), database.transaction() as connection:
            connection.execute(text(statement))
            taken = what
        assert taken is None


def test_a_seller_has_one_open_execution_and_a_product_one_event_in_flight_however_many_try(database: Database) -> None:
    ground(database)
    for status in ExecutionStatus:
        closed = status in (ExecutionStatus.COMPLETED, ExecutionStatus.FAILED, ExecutionStatus.CANCELLED)
        try:
            with database.transaction() as connection:
                add_execution(connection, status)
        except IntegrityError:
            assert not closed
        else:
            assert closed
    with database.transaction() as connection:
        add_outbox(connection, OutboxStatus.SENDING, 1, version=1)
    with pytest.raises(IntegrityError), database.transaction() as connection:
        add_outbox(connection, OutboxStatus.SENDING, 1, version=2)
