"""What an operator is told about a crawl under way."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from sqlalchemy import text

from mustit_pipeline.agents import roster
from mustit_pipeline.clock import utc_now
from mustit_pipeline.crawling import outlook
from mustit_pipeline.crawling.estimate import seconds_for
from mustit_pipeline.crawling.executions import find, open_or_join, pause
from mustit_pipeline.crawling.outlook import Outlook
from mustit_pipeline.crawling.planning import PRODUCT_TYPES, plan_products
from mustit_pipeline.domain.states import TaskType
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.marketplace.endpoints import Endpoints
from mustit_pipeline.settings import Settings
from mustit_pipeline.store import leases, tasks
from mustit_pipeline.store.database import Database
from mustit_pipeline.store.executions import StoredExecution
from mustit_pipeline_tests.conftest import MakeSettings
from mustit_pipeline_tests.integration.crawls import register


@pytest.fixture
def running(database: Database, make_settings: MakeSettings) -> StoredExecution:
    """A crawl of ten products that began a minute ago: six tasks have ended since, and fourteen are left."""
    register(database, "s")
    stored = open_or_join(database, SellerId("s"), triggered_by="test", now=utc_now()).stored
    endpoints = Endpoints.from_settings(make_settings())
    with database.transaction() as connection:
        connection.execute(
            text("UPDATE crawling_schedule_executions SET status = 'RUNNING', started_at = now() - interval '60 s'")
        )
        tasks.add(connection, stored.home, plan_products(endpoints, dict.fromkeys(range(1, 11), 0)))
        connection.execute(
            text("""
                WITH ended AS (
                    UPDATE crawler_tasks SET status = 'COMPLETED', completed_at = now() WHERE item_no <= 3 RETURNING 1)
                UPDATE crawling_schedule_executions SET completed_tasks = (SELECT count(*) FROM ended)
            """)
        )
    return find(database, stored.execution.id)


def seen(database: Database, settings: Settings, stored: StoredExecution, now: datetime | None = None) -> Outlook:
    with database.reading() as connection:
        return outlook.look(connection, settings, find(database, stored.execution.id), now or utc_now())


def test_the_end_is_expected_at_the_pace_of_the_last_minutes(
    database: Database, make_settings: MakeSettings, running: StoredExecution
) -> None:
    now = running.execution.started_at
    assert now is not None
    now += timedelta(seconds=60)
    ahead = seen(database, make_settings(), running, now)
    assert ahead.per_second == pytest.approx(0.1)
    assert ahead.done_at == pytest.approx(now + timedelta(seconds=140), abs=timedelta(seconds=1))
    assert {standing.task_type: standing.waiting for standing in ahead.standings} == dict.fromkeys(PRODUCT_TYPES, 7)
    assert {standing.task_type: standing.completed for standing in ahead.standings} == dict.fromkeys(PRODUCT_TYPES, 3)


def test_nobody_is_promised_more_than_the_limits_allow(
    database: Database, make_settings: MakeSettings, running: StoredExecution
) -> None:
    settings = make_settings(requests_per_hour=1, window_seconds=3600)
    others = "UPDATE user_agents SET status = 'BLOCKED' WHERE agent_id <> (SELECT agent_id FROM user_agents LIMIT 1)"
    with database.transaction() as connection:
        connection.execute(text(others))
    now = utc_now()
    ahead = seen(database, settings, running, now)
    assert ahead.done_at is not None
    # Fourteen requests with one agent that may send one an hour: thirteen windows after the first.
    assert ahead.done_at - now == pytest.approx(timedelta(hours=13), abs=timedelta(minutes=1))


@pytest.mark.parametrize(
    ("used", "free_in", "requests", "seconds"),
    [
        (0, 0, 4_000, 80),
        (0, 0, 4_001, 3_600),
        (0, 0, 6_936, 3_659),
        (1_000, 0, 3_000, 60),
        (1_000, 0, 3_001, 3_600),
        (4_000, 600, 100, 602),
        (4_000, 600, 4_100, 4_202),
    ],
)
def test_whoever_needs_more_than_is_left_of_the_window_waits_for_the_next(
    database: Database, make_settings: MakeSettings, used: int, free_in: float, requests: int, seconds: float
) -> None:
    settings = make_settings(requests_per_hour=80, window_seconds=3600, min_request_gap_seconds=1)
    now = utc_now()
    with database.reading() as connection:
        pool = roster.pool_status(connection, settings, now)
    pool = replace(pool, used_in_window=used, next_free_at=now + timedelta(seconds=free_in))

    assert seconds_for(settings, pool, requests, now) == pytest.approx(seconds, abs=1)


def test_what_holds_it_up_is_named(database: Database, make_settings: MakeSettings, running: StoredExecution) -> None:
    settings = make_settings()
    assert seen(database, settings, running).doing == "nobody works on it: the next slice starts soon"
    with database.transaction() as connection:
        leases.claim(
            connection,
            running.home,
            [TaskType.PRODUCT_DETAIL],
            owner="me",
            limit=4,
            lease_seconds=30,
            max_retries=2,
            max_releases=5,
        )
    working = seen(database, settings, running)
    assert (working.doing, working.in_flight) == ("fetching", 4)
    with database.transaction() as connection:
        connection.execute(text("UPDATE pool_state SET paused_until = now() + interval '1 minute'"))
    held_up = seen(database, settings, running)
    assert held_up.doing == "waiting: the marketplace throttles everybody, calls pause"
    pause(database, running.execution.id)
    paused = seen(database, settings, running)
    assert paused.doing.startswith("paused")
    assert paused.done_at is None
