"""Tallies by many transactions at once: none waits, none is lost, and what was rolled back was never counted."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from sqlalchemy import text

from mustit_pipeline.delivery.sql.settling import settle
from mustit_pipeline.domain.states import OutboxStatus
from mustit_pipeline.foundation.database import Database, database_time
from mustit_pipeline.outbox.sql import outbox
from mustit_pipeline.outbox.sql.outbox import Settlement
from mustit_pipeline.tallies.histogram import Histogram
from mustit_pipeline.tallies.sql import tallies
from mustit_pipeline.tallies.sql.tallies import Subject
from mustit_pipeline_tests.integration.rows import add_outbox, ground

HOUR = timedelta(hours=1)
OK, FAILED = ("PRODUCT_DETAIL", "ok"), ("PRODUCT_DETAIL", "server_error")


def test_transactions_that_are_open_at_once_never_wait_and_all_of_them_count(database: Database) -> None:
    """In any order of labels: rows that two of them shared would be a lock, or a deadlock."""
    with database.engine.connect() as first, database.engine.connect() as second:
        for connection in (first, second):
            connection.execute(text("SET LOCAL lock_timeout = '2s'"))
        tallies.add(first, Subject.FETCH, {OK: [0.2]})
        tallies.add(second, Subject.FETCH, {FAILED: [3.0]})
        tallies.add(first, Subject.FETCH, {FAILED: [4.0]})
        tallies.add(second, Subject.FETCH, {OK: [0.3]})
        second.commit()
        first.commit()
    with database.reading() as connection:
        found = tallies.totals(connection, Subject.FETCH)
    bounds = Subject.FETCH.bounds
    assert found == {OK: Histogram.of([0.2, 0.3], bounds), FAILED: Histogram.of([4.0, 3.0], bounds)}


def test_rows_are_few_however_many_transactions_count_one_after_the_other(database: Database) -> None:
    def count(_: int) -> None:
        with database.transaction() as connection:
            tallies.count(connection, Subject.CHANGE, {("PRICE",): 2})

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(count, range(40)))
    with database.reading() as connection:
        rows = connection.execute(text("SELECT count(*) FROM tallies WHERE hour = 'infinity'")).scalar_one()
        assert tallies.totals(connection, Subject.CHANGE) == {("PRICE",): Histogram(80)}
    assert rows <= 4


def test_what_is_rolled_back_was_never_counted(database: Database) -> None:
    with database.engine.connect() as connection:
        tallies.count(connection, Subject.CHANGE, {("PRICE",): 2})
        connection.rollback()
    with database.reading() as connection:
        assert tallies.totals(connection, Subject.CHANGE) == {}


def test_an_hour_has_what_was_counted_in_it_and_the_total_everything(database: Database) -> None:
    with database.transaction() as connection:
        tallies.add(connection, Subject.DELIVERY, {("PRODUCT_CREATED",): [10.0]})
        now = database_time(connection)
        connection.execute(text("UPDATE tallies SET hour = hour - interval '3 hours' WHERE hour < 'infinity'"))
    with database.transaction() as connection:
        tallies.add(connection, Subject.DELIVERY, {("PRODUCT_CREATED",): [20.0]})
        hours = tallies.hours(connection, Subject.DELIVERY, now - 5 * HOUR, now + HOUR)
        totals = tallies.totals(connection, Subject.DELIVERY)
    assert [[one.seconds for one in of_hour.values()] for of_hour in hours.values()] == [[10.0], [20.0]]
    assert totals[("PRODUCT_CREATED",)].seconds == 30.0


def test_a_delivery_that_stands_for_older_versions_took_as_long_as_the_first_of_them(database: Database) -> None:
    ground(database)
    aged = "UPDATE product_outbox SET created_at = now() - CAST(:age AS interval), next_attempt_at = created_at"
    with database.transaction() as connection:
        add_outbox(connection, OutboxStatus.WAITING, 1)
        older = add_outbox(connection, OutboxStatus.COMPLETED, 2)
        newer = add_outbox(connection, OutboxStatus.WAITING, 2, version=2)
        connection.execute(text(aged), {"age": HOUR})
        connection.execute(
            text(f"{aged}, completed_at = now(), superseded_by = :newer WHERE outbox_id = :older"),
            {"age": 9 * HOUR, "newer": newer, "older": older},
        )
        outbox.lock_claims(connection)
        claimed, _ = outbox.claim(connection, owner="us", limit=10, lease_seconds=60)
        settled = settle(connection, [Settlement(event, 200) for event in claimed])
    assert sorted(one.seconds or 0.0 for one in settled.values()) == [3600.0, 9 * 3600.0]
