"""Full refreshes: who is due for one, and how many start at once."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text

from mustit_pipeline.crawling.sql import executions
from mustit_pipeline.crawling.steering import deactivate_seller, give_up, open_or_join
from mustit_pipeline.domain.values import CrawlingInterval, ExecutionId, SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.scheduling.refresh import open_refreshes
from mustit_pipeline.scheduling.sql import refreshes
from mustit_pipeline.sellers import registry
from mustit_pipeline.settings import Settings
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.integration.crawls import ROW_LOCK, once_before, register

NOW = datetime(2026, 11, 20, 18, tzinfo=UTC)
WEEK = timedelta(days=7)
DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)


@pytest.fixture
def settings(make_settings: MakeSettings) -> Settings:
    return make_settings()


def registered(database: Database, seller_id: str, ago: timedelta) -> None:
    register(database, seller_id)
    with database.transaction() as connection:
        values = {"at": NOW - ago, "id": seller_id}
        connection.execute(text("UPDATE sellers SET created_at = :at WHERE seller_id = :id"), values)


def crawled(database: Database, seller_id: str, ago: timedelta, **columns: Any) -> None:
    """An ended execution that started so long ago."""
    values: dict[str, Any] = {
        "status": "COMPLETED",
        "full_refetch": False,
        "product_limit": None,
        "listed_count": 3,
        "started_at": NOW - ago,
        "ended_at": NOW - ago,
    } | columns
    with database.transaction() as connection:
        connection.execute(
            text("""
                INSERT INTO crawling_schedule_executions (execution_id, seller_id, schedule_id, status, triggered_by,
                    task_month, sweep_status, created_at, started_at, ended_at, full_refetch, product_limit,
                    listed_count)
                SELECT gen_random_uuid(), seller_id, schedule_id, :status, 'test', '2026-11-01', 'COMPLETE', :at,
                       :started_at, :ended_at, :full_refetch, :product_limit, :listed_count
                FROM crawling_schedules WHERE seller_id = :seller
            """),
            {"seller": seller_id, "at": NOW - ago} | values,
        )


def stale(database: Database, *, everything: bool = False) -> list[str]:
    with database.reading() as connection:
        found = refreshes.stale(connection, NOW, WEEK, everything=everything, busy=["busy"])
    return [one.seller_id.value for one in found]


@pytest.mark.parametrize(
    ("ago", "columns", "due"),
    [
        (WEEK, {"full_refetch": True}, True),
        (WEEK - SECOND, {"full_refetch": True}, False),
        (DAY, {"full_refetch": True, "status": "FAILED"}, True),
        (DAY - SECOND, {"full_refetch": True, "status": "FAILED"}, False),
        (DAY - SECOND, {"full_refetch": True, "status": "FAILED", "started_at": None, "listed_count": None}, False),
        (2 * DAY, {"full_refetch": True, "status": "FAILED", "ended_at": NOW - SECOND}, False),
        (SECOND, {"full_refetch": True, "status": "CANCELLED"}, False),
        (SECOND, {"full_refetch": True, "product_limit": 5}, True),
        (SECOND, {"full_refetch": True, "listed_count": None}, True),
        (SECOND, {"full_refetch": False}, True),
        (SECOND, {"full_refetch": False, "status": "FAILED"}, True),
    ],
)
def test_a_refresh_is_due_a_week_after_the_last_one_that_was_whole(
    database: Database, ago: timedelta, columns: dict[str, Any], due: bool
) -> None:
    registered(database, "a", 10 * WEEK)
    crawled(database, "a", ago, **columns)

    assert stale(database) == (["a"] if due else [])


def test_where_every_crawl_fetches_everything_each_one_is_a_refresh(database: Database) -> None:
    registered(database, "a", 10 * WEEK)
    crawled(database, "a", SECOND)

    assert stale(database, everything=True) == []
    assert stale(database, everything=False) == ["a"]


def test_a_new_seller_and_those_that_are_busy_open_or_inactive_are_left_alone(database: Database) -> None:
    registered(database, "new", WEEK - SECOND)
    for name in ("busy", "inactive", "open", "due"):
        registered(database, name, 2 * WEEK)
    deactivate_seller(database, SellerId("inactive"), utc_now())
    open_or_join(database, SellerId("open"), triggered_by="test", now=NOW)

    assert stale(database) == ["due"]


def test_the_longest_waiting_start_first_as_many_as_slots_are_free(database: Database, settings: Settings) -> None:
    for weeks, name in enumerate(["c", "b", "a"], start=2):
        registered(database, name, weeks * WEEK)

    found = open_refreshes(database, settings, busy=[], free=2, now=NOW)

    assert [entry.seller_id for entry in found.slices] == ["a", "b"]
    assert found.waiting == 1
    for entry in found.slices:
        assert entry.key == f"{entry.execution_id}:1"
        with database.reading() as connection:
            stored = executions.get(connection, ExecutionId(entry.execution_id))
        assert (stored.full_refetch, stored.product_limit, stored.triggered_by) == (True, None, "full refresh")

    again = open_refreshes(database, settings, busy=[], free=2, now=NOW)
    assert [entry.seller_id for entry in again.slices] == ["c"]


def test_a_seller_that_is_deactivated_or_crawled_while_it_is_chosen_is_not_refreshed(
    database: Database, settings: Settings
) -> None:
    for weeks, name in enumerate(["due", "crawled", "inactive"], start=2):
        registered(database, name, weeks * WEEK)

    def meanwhile() -> None:
        deactivate_seller(database, SellerId("inactive"), utc_now())
        open_or_join(database, SellerId("crawled"), triggered_by="test", now=NOW)

    with once_before(database, ROW_LOCK, meanwhile):
        found = open_refreshes(database, settings, busy=[], free=3, now=NOW)

    assert [entry.seller_id for entry in found.slices] == ["due"]
    with database.reading() as connection:
        joined = connection.execute(
            text("SELECT full_refetch FROM crawling_schedule_executions WHERE seller_id = 'crawled'")
        )
        assert joined.scalars().all() == [False]


def test_sellers_whose_refresh_always_fails_rest_and_take_no_slot_of_others(
    database: Database, settings: Settings
) -> None:
    """They never become younger, and used to be crawled every hour while the others waited for ever."""
    failing, healthy, slots = 6, 5, 2
    for number in range(failing):
        registered(database, f"failing {number}", 20 * WEEK)
    for number in range(healthy):
        registered(database, f"healthy {number}", 2 * WEEK)
    started: Counter[str] = Counter()
    for hour in range(24):
        now = NOW + hour * timedelta(hours=1)
        for entry in open_refreshes(database, settings, busy=[], free=slots, now=now).slices:
            started[entry.seller_id] += 1
            end(database, ExecutionId(entry.execution_id), now, fails=entry.seller_id.startswith("failing"))

    assert started == Counter(
        [*(f"failing {number}" for number in range(failing)), *(f"healthy {number}" for number in range(healthy))]
    )

    registered(database, "late", 2 * WEEK)
    again = open_refreshes(database, settings, busy=[], free=slots, now=NOW + DAY)
    assert [entry.seller_id for entry in again.slices] == ["late", "failing 0"]


def test_a_failed_refresh_rests_for_the_sellers_interval_but_no_longer_than_the_age_of_refreshes(
    database: Database,
) -> None:
    for name, days in (("daily", 1), ("three days", 3), ("monthly", 30)):
        registered(database, name, 10 * WEEK)
        registry.change_interval(database, SellerId(name), CrawlingInterval.days(days), utc_now())
        crawled(database, name, 6 * WEEK, full_refetch=True, status="FAILED")
    rests: dict[str, int] = {}
    for days in range(10):
        with database.transaction() as connection:
            connection.execute(text("UPDATE crawling_schedule_executions SET ended_at = :at"), {"at": NOW - days * DAY})
        for name in stale(database):
            rests.setdefault(name, days)

    assert rests == {"daily": 1, "three days": 3, "monthly": 7}


def end(database: Database, execution_id: ExecutionId, now: datetime, *, fails: bool) -> None:
    """End a refresh at once; one that fails does so before it is planned."""
    if fails:
        give_up(database, execution_id, "TEST", "the count call fails", now)
        return
    with database.transaction() as connection:
        values = {"id": execution_id.value, "now": now}
        statement = """UPDATE crawling_schedule_executions SET status = 'COMPLETED', started_at = :now, ended_at = :now,
                       listed_count = 3 WHERE execution_id = :id"""
        connection.execute(text(statement), values)


def test_nothing_is_opened_while_no_slot_is_free(database: Database, settings: Settings) -> None:
    registered(database, "a", 2 * WEEK)

    for free in (0, -3):
        found = open_refreshes(database, settings, busy=["x"], free=free, now=NOW)
        assert (found.slices, found.waiting) == ([], 1)
    with database.reading() as connection:
        assert executions.find_open(connection, SellerId("a")) is None


def test_a_seller_is_refreshed_no_more_often_than_it_is_crawled(database: Database) -> None:
    """One that is crawled every 30 days was fetched as a whole every seven."""
    registered(database, "monthly", 60 * DAY)
    crawled(database, "monthly", 29 * DAY, full_refetch=True)
    registered(database, "daily", 60 * DAY)
    crawled(database, "daily", 8 * DAY, full_refetch=True)
    change = "UPDATE sellers SET interval_amount = 30, interval_unit = 'DAYS' WHERE seller_id = 'monthly'"
    with database.transaction() as connection:
        connection.execute(text(change))

    def stale_at(now: datetime) -> list[str]:
        with database.reading() as connection:
            return [one.seller_id.value for one in refreshes.stale(connection, now, WEEK, everything=False, busy=[])]

    assert stale_at(NOW) == ["daily"]
    assert set(stale_at(NOW + DAY)) == {"daily", "monthly"}
