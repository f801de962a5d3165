"""The numbers of a day, from rows whose times a test has chosen."""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Connection, text

from mustit_pipeline.domain.errors import NotFound
from mustit_pipeline.domain.states import OutboxStatus, TaskStatus
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.monitoring.metrics import day_span, days_to_compute, metrics_of, metrics_of_seller, sums
from mustit_pipeline.simulator.control import MarketplaceControl
from mustit_pipeline.simulator.process import RunningSimulator
from mustit_pipeline.tallies.histogram import Histogram
from mustit_pipeline.tallies.sql.tallies import Subject
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.integration.crawls import crawl, register
from mustit_pipeline_tests.integration.rows import SELLER, Ground, add_outbox, add_task, ground

DAY = date(2026, 11, 14)
START, END = day_span(DAY)
NOON = START + timedelta(hours=12)
ONE_SECOND = timedelta(seconds=1)


@pytest.fixture
def standing(database: Database) -> Ground:
    """A seller registered long before, with one execution that started at noon."""
    found = ground(database)
    write(database, "UPDATE sellers SET created_at = :at", at=START - timedelta(days=30))
    write(
        database,
        "UPDATE crawling_schedule_executions SET started_at = :at, requests = 12, throttled = 2, listed_count = 10, "
        "foreign_items = 2",
        at=NOON,
    )
    return found


def write(database: Database, statement: str, **values: Any) -> None:
    with database.transaction() as connection:
        connection.execute(text(statement), values)


def filled(standing: Ground, fill: Callable[[Connection], object]) -> None:
    with standing.database.transaction() as connection:
        fill(connection)


def change_set(
    connection: Connection,
    item_no: int,
    life_cycle: str,
    types: list[str],
    at: datetime,
    execution_id: UUID | None = None,
) -> None:
    connection.execute(
        text("""
            INSERT INTO product_change_sets (seller_id, item_no, version, life_cycle, change_types, changes,
                                             product_data, execution_id, detected_at)
            SELECT :seller, :item, count(*) + 1, :life_cycle, :types, '[]',
                   CASE WHEN :life_cycle <> 'DELETED' THEN '{}' END, :execution_id, :at
            FROM product_change_sets WHERE item_no = :item
        """),
        {
            "seller": SELLER,
            "item": item_no,
            "life_cycle": life_cycle,
            "types": types,
            "at": at,
            "execution_id": execution_id or uuid4(),
        },
    )


def test_a_day_in_seoul_starts_at_three_in_the_afternoon_of_utc() -> None:
    assert [moment.astimezone(UTC) for moment in (START, END)] == [
        datetime(2026, 11, 13, 15, tzinfo=UTC),
        datetime(2026, 11, 14, 15, tzinfo=UTC),
    ]


def test_tasks_are_counted_by_state_and_success_is_what_succeeded_of_all(standing: Ground) -> None:
    states = [TaskStatus.COMPLETED] * 5 + [TaskStatus.FAILED] + [TaskStatus.PUBLISHED, TaskStatus.IN_PROGRESS]
    filled(standing, lambda c: [add_task(c, standing.home, state, n + 1) for n, state in enumerate(states)])

    [found] = metrics_of(standing.database, DAY)

    counts = found.counts
    assert (counts.crawls, counts.tasks_total, counts.tasks_completed, counts.tasks_failed) == (1, 8, 5, 1)
    assert (counts.tasks_published, counts.tasks_in_progress, counts.tasks_waiting, counts.tasks_retry) == (1, 1, 0, 0)
    assert (counts.requests, counts.throttled) == (12, 2)
    assert found.success_rate == pytest.approx(62.5)


@pytest.mark.parametrize(
    ("started", "crawls"), [(START - ONE_SECOND, 0), (START, 1), (END - ONE_SECOND, 1), (END, 0)], ids=str
)
def test_a_crawl_belongs_to_the_day_it_started_on(standing: Ground, started: datetime, crawls: int) -> None:
    write(standing.database, "UPDATE crawling_schedule_executions SET started_at = :at", at=started)

    assert metrics_of(standing.database, DAY)[0].counts.crawls == crawls


def test_changes_are_counted_by_type_on_the_day_they_were_detected(standing: Ground) -> None:
    def fill(c: Connection) -> None:
        change_set(c, 1, "CREATED", [], START)
        change_set(c, 1, "UPDATED", ["PRICE", "STOCK"], NOON)
        change_set(c, 2, "CREATED", [], START - ONE_SECOND)
        change_set(c, 2, "UPDATED", ["PRICE"], END - ONE_SECOND)
        change_set(c, 2, "DELETED", [], END)

    filled(standing, fill)

    counts = metrics_of(standing.database, DAY)[0].counts
    assert counts.changes == {"CREATED": 1, "PRICE": 2, "STOCK": 1}
    assert counts.change_sets == 3


def test_progress_is_what_was_complete_when_the_day_ended_however_late_it_is_asked(standing: Ground) -> None:
    def fill(c: Connection) -> None:
        c.execute(
            text("""
                INSERT INTO products (seller_id, item_no, minishop_data_hash, detail_data_hash, option_data_hash,
                                      deleted_at)
                SELECT :seller, n, 'a', 'b', 'c', CASE WHEN n = 3 THEN now() END FROM generate_series(1, 4) n
            """),
            {"seller": SELLER},
        )
        for item in (1, 2, 3):
            change_set(c, item, "CREATED", [], NOON)
        change_set(c, 3, "DELETED", [], END + ONE_SECOND)
        change_set(c, 4, "CREATED", [], END + ONE_SECOND)

    filled(standing, fill)

    found = metrics_of(standing.database, DAY)[0]
    assert (found.counts.products_complete, found.counts.products_total) == (3, 8)
    assert found.progress_rate == pytest.approx(37.5)
    assert metrics_of(standing.database, DAY - timedelta(days=1))[0].counts.products_complete == 0


def test_once_a_crawl_has_ended_progress_is_what_it_counted_and_what_came_and_went_until_midnight(
    standing: Ground,
) -> None:
    write(
        standing.database,
        "UPDATE crawling_schedule_executions SET status = 'COMPLETED', ended_at = :at, complete_count = 6",
        at=NOON,
    )

    def fill(c: Connection) -> None:
        # A hold that is released publishes what its crawl has counted.
        change_set(c, 1, "CREATED", [], NOON + ONE_SECOND, standing.home.execution_id)
        change_set(c, 2, "DELETED", [], NOON + ONE_SECOND)
        change_set(c, 3, "DELETED", [], NOON + ONE_SECOND)
        change_set(c, 4, "RESTORED", [], NOON + ONE_SECOND)
        # The next crawl goes on past midnight.
        change_set(c, 5, "CREATED", [], END - ONE_SECOND)
        change_set(c, 6, "CREATED", [], END)

    filled(standing, fill)

    assert metrics_of(standing.database, DAY)[0].counts.products_complete == 6
    assert metrics_of(standing.database, DAY + timedelta(days=1))[0].counts.products_complete == 7


def test_delays_are_told_for_what_was_delivered_that_day_without_what_was_superseded(standing: Ground) -> None:
    def fill(c: Connection) -> None:
        for item, hours in ((1, 1.0), (2, 3.0), (3, 8.0)):
            add_outbox(c, OutboxStatus.COMPLETED, item)
            values = {"item": item, "at": NOON, "sent": NOON + timedelta(hours=hours)}
            c.execute(text("UPDATE product_change_sets SET detected_at = :at WHERE item_no = :item"), values)
            c.execute(text("UPDATE product_outbox SET completed_at = :sent WHERE item_no = :item"), values)
        late = add_outbox(c, OutboxStatus.COMPLETED, 4)
        c.execute(
            text("UPDATE product_outbox SET completed_at = :at, superseded_by = outbox_id WHERE outbox_id = :id"),
            {"at": END - ONE_SECOND, "id": late},
        )
        add_outbox(c, OutboxStatus.WAITING, 5)

    filled(standing, fill)

    counts = metrics_of(standing.database, DAY)[0].counts
    assert (counts.delivered, counts.delivery_median_hours, counts.delivery_max_hours) == (3, 3.0, 8.0)


def test_what_superseded_others_is_as_late_as_the_first_of_them(standing: Ground) -> None:
    def fill(c: Connection) -> None:
        for version, detected in ((1, NOON - timedelta(hours=30)), (2, NOON - timedelta(hours=10)), (3, NOON)):
            add_outbox(c, OutboxStatus.COMPLETED, 1, version=version)
            values = {"version": version, "at": detected, "sent": NOON + timedelta(hours=1)}
            c.execute(text("UPDATE product_change_sets SET detected_at = :at WHERE version = :version"), values)
            c.execute(text("UPDATE product_outbox SET completed_at = :sent WHERE version = :version"), values)
        c.execute(text("UPDATE product_outbox SET superseded_by = outbox_id WHERE version < 3"))

    filled(standing, fill)

    counts = metrics_of(standing.database, DAY)[0].counts
    assert (counts.delivered, counts.delivery_max_hours) == (1, 31.0)


def test_every_seller_registered_by_then_has_a_row_and_an_idle_one_is_all_zeros(standing: Ground) -> None:
    register(standing.database, "later")
    register(standing.database, "idle")
    write(standing.database, "UPDATE sellers SET created_at = :at WHERE seller_id = 'idle'", at=END - ONE_SECOND)
    write(standing.database, "UPDATE sellers SET created_at = :at WHERE seller_id = 'later'", at=END)

    found = metrics_of(standing.database, DAY)

    assert [one.counts.seller_id for one in found] == [SELLER, "idle"]
    assert (found[1].success_rate, found[1].progress_rate, found[1].counts.delivery_max_hours) == (0.0, 0.0, None)
    before = metrics_of_seller(standing.database, SellerId("later"), DAY)
    assert (before.counts.crawls, before.counts.changes, before.success_rate) == (0, {}, 0.0)
    with pytest.raises(NotFound):
        metrics_of_seller(standing.database, SellerId("unregistered"), DAY)


def test_one_seller_alone_has_the_same_numbers_as_among_all(
    database: Database, make_settings: MakeSettings, marketplace: RunningSimulator, market: MarketplaceControl
) -> None:
    market.add_seller("a", 4)
    market.add_seller("b", 2)
    register(database, "a", "b")
    settings = make_settings(base_url=marketplace.url)
    crawled = {name: crawl(database, settings, name).stored for name in ("a", "b")}
    today = day_of(database)

    found = {one.counts.seller_id: one for one in metrics_of(database, today)}

    assert found["a"] == metrics_of_seller(database, SellerId("a"), today)
    for name, products in (("a", 4), ("b", 2)):
        counts = found[name].counts
        assert (counts.tasks_total, counts.tasks_completed) == (1 + 2 * products, 1 + 2 * products)
        assert counts.requests == crawled[name].requests
        assert (counts.changes, counts.products_complete) == ({"CREATED": products}, products)
        assert (found[name].success_rate, found[name].progress_rate) == (100.0, 100.0)
    # Counted by the crawls themselves, not now.
    write(database, "DELETE FROM products")
    assert [one.counts.products_complete for one in metrics_of(database, today)] == [4, 2]
    both = sums(list(found.values()))
    assert (both.sellers, both.crawled_sellers, both.tasks_total, both.change_sets) == (2, 2, 14, 6)
    assert (both.success_rate, both.progress_rate) == (100.0, 100.0)


def day_of(database: Database) -> date:
    """The day on which the test's own crawls started, also when midnight passes meanwhile."""
    with database.reading() as connection:
        query = "SELECT max(CAST(started_at AT TIME ZONE 'Asia/Seoul' AS date)) FROM crawling_schedule_executions"
        return connection.execute(text(query)).scalar_one()


TICK = END + timedelta(minutes=10)
BEFORE = [DAY - timedelta(days=back) for back in range(30, 0, -1)]


def test_yesterday_is_computed_and_again_the_days_whose_crawls_went_on_into_it(standing: Ground) -> None:
    at_noon = "UPDATE crawling_schedule_executions SET started_at = :at, ended_at = :ended, status = 'COMPLETED'"
    write(standing.database, at_noon, at=NOON, ended=NOON)
    assert days_to_compute(standing.database, TICK, BEFORE) == [DAY]

    write(standing.database, at_noon, at=NOON - timedelta(days=2), ended=START + ONE_SECOND)
    assert days_to_compute(standing.database, TICK, BEFORE) == [DAY - timedelta(days=2), DAY]

    write(standing.database, at_noon, at=NOON - timedelta(days=2), ended=START - ONE_SECOND)
    assert days_to_compute(standing.database, TICK, BEFORE) == [DAY]

    write(standing.database, at_noon, at=NOON - timedelta(days=9), ended=NOON)
    assert days_to_compute(standing.database, TICK, BEFORE) == [DAY]


def test_days_that_were_not_measured_are_made_up_for_and_with_them_what_moved_meanwhile(standing: Ground) -> None:
    """The daemon was down for two midnights: it makes up for the last missed tick only."""
    write(
        standing.database,
        "UPDATE crawling_schedule_executions SET started_at = :at, ended_at = :ended, status = 'COMPLETED'",
        at=NOON - timedelta(days=4),
        ended=NOON - timedelta(days=2),
    )

    assert days_to_compute(standing.database, TICK, BEFORE[:-2]) == [BEFORE[-4], *BEFORE[-2:], DAY]


def test_nothing_is_made_up_for_before_the_first_seller_or_a_week_ago(standing: Ground) -> None:
    assert days_to_compute(standing.database, TICK, []) == [*BEFORE[-7:], DAY]

    write(standing.database, "UPDATE sellers SET created_at = :at", at=START - ONE_SECOND)
    assert days_to_compute(standing.database, TICK, []) == [BEFORE[-1], DAY]

    write(standing.database, "UPDATE sellers SET created_at = :at", at=TICK)
    assert days_to_compute(standing.database, TICK, []) == [DAY]


def test_p95_of_the_days_fetches_is_that_of_all_sellers_from_midnight_to_midnight(standing: Ground) -> None:
    quick, slow = Histogram.of([0.2] * 10, Subject.FETCH.bounds), Histogram.of([20.0] * 10, Subject.FETCH.bounds)
    hour = timedelta(hours=1)
    for at, one in ((START - hour, slow), (START, quick), (END - hour, quick), (END, slow)):
        write(
            standing.database,
            """INSERT INTO tallies (subject, hour, labels, slot, number, seconds, buckets)
               VALUES ('FETCH', :hour, ARRAY['MINISHOP', 'ok'], 0, :number, :seconds, :buckets)""",
            hour=at,
            number=one.number,
            seconds=one.seconds,
            buckets=list(one.buckets),
        )

    found = metrics_of(standing.database, DAY)

    assert found[0].fetch_p95_seconds == sums(found).fetch_p95_seconds == quick.quantile(0.95, Subject.FETCH.bounds)
    assert metrics_of_seller(standing.database, SellerId(SELLER), DAY).fetch_p95_seconds == found[0].fetch_p95_seconds
    assert metrics_of(standing.database, DAY - timedelta(days=5))[0].fetch_p95_seconds is None
