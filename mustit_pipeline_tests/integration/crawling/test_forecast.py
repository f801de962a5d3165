"""What an operator is told about a crawl under way."""

from datetime import datetime, timedelta
from uuid import UUID

import pytest
from sqlalchemy import Connection, text

from mustit_pipeline.agents import roster
from mustit_pipeline.agents.sql import agent_bookings
from mustit_pipeline.agents.sql.agent_bookings import AgentLimits
from mustit_pipeline.crawling import forecast
from mustit_pipeline.crawling.forecast import Forecast
from mustit_pipeline.crawling.planning import PRODUCT_TYPES, plan_products
from mustit_pipeline.crawling.sql import leases, tasks
from mustit_pipeline.crawling.sql.executions import StoredExecution
from mustit_pipeline.crawling.steering import find, open_or_join, pause
from mustit_pipeline.domain.states import TaskType
from mustit_pipeline.domain.values import SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.marketplace.endpoints import Endpoints
from mustit_pipeline.settings import Settings
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
            text("""
                UPDATE crawling_schedule_executions SET status = 'RUNNING', started_at = now() - interval '60 s',
                       sweep_status = 'COMPLETE', listed_count = 10
            """)
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


def seen(database: Database, settings: Settings, stored: StoredExecution, now: datetime | None = None) -> Forecast:
    with database.reading() as connection:
        return forecast.look(connection, settings, find(database, stored.execution.id), now or utc_now())


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


def test_no_crawl_is_promised_more_than_the_limits_allow(
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


def test_a_sweep_under_way_is_judged_by_what_is_listed_and_not_by_the_pages_that_are_planned(
    database: Database, make_settings: MakeSettings, running: StoredExecution
) -> None:
    """Forty pages of a seller of 20,000 products were promised to be done in seconds."""
    settings = make_settings(requests_per_hour=80, window_seconds=3600, min_request_gap_seconds=1, page_size=500)
    with database.transaction() as connection:
        connection.execute(
            text("UPDATE crawling_schedule_executions SET sweep_status = 'PENDING', listed_count = 20000")
        )
    now = utc_now()
    sweeping = seen(database, settings, running, now)
    with database.transaction() as connection:
        connection.execute(text("UPDATE crawling_schedule_executions SET product_limit = 100"))
    limited = seen(database, settings, running, now)
    with database.transaction() as connection:
        connection.execute(text("UPDATE crawling_schedule_executions SET sweep_status = 'COMPLETE'"))
    swept = seen(database, settings, running, now)

    assert [view.expected_tasks for view in (sweeping, limited, swept)] == [40 + 40_000, 1 + 200, 20]
    assert [view.is_estimate for view in (sweeping, limited, swept)] == [True, True, False]
    assert sweeping.done_at is not None
    assert sweeping.done_at - now > timedelta(hours=9)


def test_a_pool_that_waits_for_its_window_is_not_taken_for_a_slow_one(
    database: Database, make_settings: MakeSettings, running: StoredExecution
) -> None:
    """The last few requests of a burst, five minutes ago, were taken for the pace of the whole crawl."""
    settings = make_settings(window_seconds=3600)
    with database.transaction() as connection:
        connection.execute(text("UPDATE crawling_schedule_executions SET started_at = now() - interval '10 min'"))
        connection.execute(
            text("UPDATE crawler_tasks SET completed_at = now() - interval '8 min' WHERE completed_at IS NOT NULL")
        )
        connection.execute(text("UPDATE crawler_tasks SET completed_at = now() WHERE task_key LIKE '%DETAIL:1'"))
    now = utc_now()
    ahead = seen(database, settings, running, now)
    assert ahead.per_second == pytest.approx(1 / 300)
    assert ahead.done_at is not None
    # Six in ten minutes, and fourteen are left.
    assert ahead.done_at - now == pytest.approx(timedelta(minutes=10 * 14 / 6), abs=timedelta(seconds=5))


def test_the_pool_is_played_forward_from_the_bookings_that_are_written(database: Database) -> None:
    now, limits = utc_now(), AgentLimits(requests=2, window=3600, gap=1)
    with database.transaction() as connection:
        first, second, third, *_ = roster.list_agents(connection)
        connection.execute(
            text("UPDATE user_agents SET status = 'BLOCKED' WHERE NOT agent_id = ANY(:ids)"),
            {"ids": [first.agent_id, second.agent_id, third.agent_id]},
        )
        connection.execute(
            text("UPDATE user_agents SET status = 'SUSPENDED', suspended_until = :until WHERE agent_id = :id"),
            {"until": now + timedelta(minutes=10), "id": third.agent_id},
        )
        for agent, booked, answered in (
            (first, 7300, 7200),
            (first, 3541, 3540),
            (first, 1801, 1800),
            (first, 901, 900),
            (second, 1, None),
        ):
            book(connection, agent.agent_id, now, booked, answered)
        found = agent_bookings.usable(connection, limits, now)
    # The oldest one of the first agent is out of the window, and the next one beyond what it may have used.
    assert sorted((use.rests, use.ends) for use in found) == [(0, (-1800, -900)), (0, (0,)), (600, ())]


def book(connection: Connection, agent_id: UUID, now: datetime, booked_ago: float, answered_ago: float | None) -> None:
    """A request of an agent; without an answer it is in flight."""
    booked = now - timedelta(seconds=booked_ago)
    answered = None if answered_ago is None else now - timedelta(seconds=answered_ago)
    connection.execute(
        text("INSERT INTO agent_bookings VALUES (gen_random_uuid(), :agent_id, :booked, :expires, :answered)"),
        {"agent_id": agent_id, "booked": booked, "expires": booked + timedelta(seconds=30), "answered": answered},
    )


def test_a_crawl_that_gets_no_session_token_says_so_and_promises_nothing(
    database: Database, make_settings: MakeSettings, running: StoredExecution
) -> None:
    """It was said to be fetching, done in twenty hours, or left alone, as the look fell."""
    settings = make_settings()
    long_ago = text("UPDATE crawler_tasks SET completed_at = now() - interval '20 min' WHERE completed_at IS NOT NULL")
    began = "UPDATE crawling_schedule_executions SET started_at = now() - interval '20 min'"
    with database.transaction() as connection:
        connection.execute(long_ago)
        connection.execute(text(f"{began}, updated_at = now() - interval '10 min'"))
    between = seen(database, settings, running)
    with database.transaction() as connection:
        leases.claim(connection, running.home, PRODUCT_TYPES, owner="me", limit=1, lease_seconds=30, max_retries=2)
    trying = seen(database, settings, running)
    with database.transaction() as connection:
        token = "session = 'sealed', session_key_id = 'k', token_expires_at = now() + interval '1 hour'"
        one = "SELECT agent_id FROM user_agents LIMIT 1"
        connection.execute(text(f"UPDATE user_agents SET {token} WHERE agent_id = ({one})"))
    able = seen(database, settings, running)

    assert between.doing.startswith("nothing has ended for 10 min and no agent has a session token: see")
    assert trying.doing == "waiting: no agent has a session token"
    assert able.doing == "fetching"
    assert [view.done_at for view in (between, trying, able)] == [None, None, None]


def test_what_holds_it_up_is_named(database: Database, make_settings: MakeSettings, running: StoredExecution) -> None:
    settings = make_settings()
    assert seen(database, settings, running).doing == "no worker is on it: the next slice starts soon"
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
    assert (working.doing, working.in_progress) == ("fetching", 4)
    with database.transaction() as connection:
        connection.execute(text("UPDATE pool_state SET paused_until = now() + interval '1 minute'"))
    held_up = seen(database, settings, running)
    assert held_up.doing.startswith("waiting: the marketplace throttles all agents, calls pause until ")
    pause(database, running.execution.id)
    paused = seen(database, settings, running)
    assert paused.doing.startswith("paused")
    assert paused.done_at is None
