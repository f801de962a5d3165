"""`agents status` and `execution show` in every state: one look says what is happening and when it will be done."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from sqlalchemy import text
from typer.testing import CliRunner

from mustit_pipeline.cli import output
from mustit_pipeline.cli.app import app
from mustit_pipeline.crawling.planning import plan_pages, plan_products
from mustit_pipeline.crawling.sql import tasks
from mustit_pipeline.crawling.steering import cancel, give_up, open_or_join, pause
from mustit_pipeline.domain.values import ExecutionId, SellerId
from mustit_pipeline.foundation.clock import utc_now
from mustit_pipeline.foundation.database import Database
from mustit_pipeline.marketplace.endpoints import Endpoints
from mustit_pipeline.settings import load_settings
from mustit_pipeline_tests.conftest import JWT_SECRET, TOKEN_KEY, MakeSettings, dagster_beside
from mustit_pipeline_tests.integration.crawls import register

Look = Callable[..., str]

RESTING = "UPDATE user_agents SET status = 'SUSPENDED', suspended_until = now() + interval '50 min 30 s'"
A_FEW = "agent_id IN (SELECT agent_id FROM user_agents ORDER BY agent_id LIMIT 3)"
IN_FLIGHT = """
    INSERT INTO agent_bookings (booking_id, agent_id, booked_at, expires_at)
    SELECT gen_random_uuid(), agent_id, now(), now() + interval '25 s' FROM user_agents
"""
WORKER = "INSERT INTO pool_workers (worker_id, epoch, reaches_redis) VALUES (gen_random_uuid(), 0, false)"
ANSWERED = """
    INSERT INTO agent_bookings (booking_id, agent_id, booked_at, expires_at, answered_at)
    SELECT gen_random_uuid(), agent_id, now() - interval '{0} s', now(), now() - interval '{0} s'
    FROM user_agents, generate_series(1, {1})
"""


@pytest.fixture
def look(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Look:
    """A command in this process on the test's own database, as a screen of 80 and one of 120 columns show it."""
    for name, value in {
        "MUSTIT_HOME": str(tmp_path / "home"),
        "MUSTIT_DATABASE_URL": database_url,
        "MUSTIT_DAGSTER_DATABASE_URL": dagster_beside(database_url),
        "MUSTIT_REDIS_URL": "off",
        "MUSTIT_TOKEN_KEY": TOKEN_KEY,
        "MUSTIT_JWT_SECRET": JWT_SECRET,
        # A sweep then says how many products will be fetched.
        "MUSTIT_RECRAWL": "everything",
    }.items():
        monkeypatch.setenv(name, value)
    load_settings.cache_clear()

    def shown(*arguments: str) -> str:
        """What it says, without the breaks and the columns that a screen puts between words."""
        for columns in (120, 80):
            monkeypatch.setattr(output.out, "width", columns)
            done = CliRunner().invoke(app, list(arguments))
            assert done.exit_code == 0, done.output
            assert max(cell_len(line) for line in done.stdout.splitlines()) <= columns
            print(f"{columns} columns\n{done.stdout}")
        monkeypatch.setattr(output.out, "width", 400)
        return re.sub(" *(\n| )", r"\1", CliRunner().invoke(app, list(arguments)).stdout)

    return shown


def change(database: Database, *statements: str, **values: Any) -> None:
    with database.transaction() as connection:
        for statement in statements:
            connection.execute(text(statement), values)


@pytest.mark.parametrize(
    ("state", "verdict", "also"),
    [
        pytest.param((), "agents are free", "0 of 4,000, 0 in flight", id="idle"),
        pytest.param(
            (WORKER, IN_FLIGHT),
            "every agent is at work; the next is free in 2",
            "50 of 4,000, 50 in flight",
            id="all in flight",
        ),
        pytest.param(
            (WORKER, IN_FLIGHT, IN_FLIGHT),
            "every agent is at work; the next is free in 2",
            "100 of 4,000, 50 in flight",
            id="with what a silent worker may have sent",
        ),
        pytest.param(
            (WORKER, "UPDATE pool_workers SET seen_at = now() - interval '10 s'", IN_FLIGHT),
            "every agent rests after its request; the next is free in 2",
            "50 of 4,000, 0 in flight",
            id="its worker was killed",
        ),
        pytest.param(
            (ANSWERED.format(570, 80),),
            "every agent has used its requests; the next is free in 50 min",
            "4,000 of 4,000, 0 in flight",
            id="used up",
        ),
        pytest.param(
            ("UPDATE pool_state SET paused_until = now() + interval '3 min 30 s'",),
            "the marketplace throttles all agents, calls go on in 3 min",
            "breaker",
            id="storm",
        ),
        pytest.param(
            (f"{RESTING} WHERE {A_FEW}",),
            "agents are free",
            "3; the first is back in 50 min",
            id="some throttled",
        ),
        pytest.param(
            (RESTING,),
            "no agent is available; the first is back in 50 min",
            "50; the first is back",
            id="all throttled",
        ),
        pytest.param(
            (
                f"{RESTING} WHERE NOT {A_FEW}",
                "UPDATE pool_state SET breaker_open_until = now() + interval '9 min 30 s'",
            ),
            "the breaker is open, too few agents are left; a trial in 9 min",
            "breaker open",
            id="breaker open",
        ),
        pytest.param(
            ("UPDATE pool_state SET breaker_open_until = now() - interval '1 s'",),
            "the breaker is half-open: a trial request closes or re-opens it",
            "breaker half-open",
            id="breaker half-open",
        ),
        pytest.param(
            (RESTING, "UPDATE pool_state SET breaker_open_until = now() - interval '1 s'"),
            "no agent is available; the first is back in 50 min",
            "breaker half-open",
            id="no agent left for a trial",
        ),
        pytest.param(
            (f"UPDATE user_agents SET status = 'BLOCKED' WHERE {A_FEW}",),
            "agents are free",
            "3: see `mustit agents list`, then `unblock`",
            id="some blocked",
        ),
        pytest.param(
            (
                """UPDATE user_agents SET session = 'x', session_key_id = 'k',
                   token_expires_at = now() + interval '1 h'""",
                f"UPDATE user_agents SET token_expires_at = now() - interval '1 s' WHERE {A_FEW}",
            ),
            "agents are free",
            "47; the rest get one with their next request",
            id="tokens expired",
        ),
    ],
)
def test_the_state_of_the_pool_is_told_in_the_first_line(
    database: Database, look: Look, state: tuple[str, ...], verdict: str, also: str
) -> None:
    change(database, *state)
    shown = look("agents", "status")
    first = shown.splitlines()[0]
    assert verdict in first
    assert len(first) <= 80
    assert also in shown


def test_agents_in_the_gap_after_an_answer_rest_and_are_not_used_up(
    database: Database, look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTIT_MIN_REQUEST_GAP_SECONDS", "60")
    change(database, ANSWERED.format(5, 1))
    shown = look("agents", "status")
    assert re.match(r"every agent rests after its request; the next is free in 5\d s \([\d:]+\)\n", shown)
    assert "50 of 4,000, 0 in flight" in shown


@pytest.fixture
def opened(database: Database) -> ExecutionId:
    register(database, "s")
    return open_or_join(database, SellerId("s"), triggered_by="test", now=utc_now()).stored.execution.id


@pytest.fixture
def running(database: Database, make_settings: MakeSettings, opened: ExecutionId) -> ExecutionId:
    """A crawl of ten products that began a minute ago: its page and six tasks have ended, and fourteen are left."""
    endpoints = Endpoints.from_settings(make_settings())
    home = open_or_join(database, SellerId("s"), triggered_by="test", now=utc_now()).stored.home
    with database.transaction() as connection:
        tasks.add(connection, home, plan_pages(endpoints, SellerId("s"), 10, None))
        tasks.add(connection, home, plan_products(endpoints, dict.fromkeys(range(1, 11), 0)))
    change(
        database,
        "UPDATE crawler_tasks SET status = 'COMPLETED', completed_at = now() WHERE coalesce(item_no, 0) <= 3",
        """UPDATE crawling_schedule_executions SET status = 'RUNNING', started_at = now() - interval '60 s',
           listed_count = 10, sweep_status = 'COMPLETE', completed_tasks = 7, requests = 8""",
    )
    return opened


LEASED = """
    UPDATE crawler_tasks SET status = 'IN_PROGRESS', lease_owner = 'me', lease_no = 1,
           lease_expires_at = now() + interval '30 s' WHERE status <> 'COMPLETED'
"""
ENDED = """
    UPDATE crawler_tasks SET status = 'COMPLETED', completed_at = now();
    UPDATE crawling_schedule_executions SET completed_tasks = total_tasks
"""


def test_a_crawl_that_no_run_has_begun_waits_for_a_run(database: Database, look: Look, opened: ExecutionId) -> None:
    shown = look("execution", "show", str(opened))
    assert shown.startswith("s PENDING no task is planned\n")
    assert "waiting for a run that plans it" in shown
    assert "sweep not begun" in shown


def test_a_sweep_under_way_is_promised_the_time_of_all_its_products(
    database: Database, look: Look, running: ExecutionId
) -> None:
    change(
        database,
        "UPDATE crawling_schedule_executions SET sweep_status = 'PENDING', listed_count = 20000",
        LEASED,
    )
    shown = look("execution", "show", str(running))
    told = CliRunner().invoke(app, ["execution", "show", str(running), "--json"]).stdout
    assert shown.startswith("s RUNNING 0 % (7 of about 40,040 tasks, 0 failed)\n")
    assert "pace 14 tasks in progress, 0.1 ended a second" in shown
    assert "doing fetching\n" in shown
    assert "sweep under way, 20,000 products listed" in shown
    assert "done about in 10 h (" in shown
    assert (json.loads(told)["tasksInProgress"], json.loads(told)["expectedTasks"]) == (14, 40_040)


def test_a_running_crawl_says_when_it_will_be_done(database: Database, look: Look, running: ExecutionId) -> None:
    change(database, LEASED)
    shown = look("execution", "show", str(running))
    assert shown.startswith("s RUNNING 33 % (7 of 21 tasks, 0 failed)\n")
    assert "pace 14 tasks in progress, 0.1 ended a second" in shown
    assert "doing fetching\n" in shown
    assert "done about in 2 min" in shown


@pytest.mark.parametrize(
    ("state", "doing"),
    [
        pytest.param((), "no worker is on it: the next slice starts soon", id="between slices"),
        pytest.param(
            ("UPDATE crawling_schedule_executions SET updated_at = now() - interval '7 min'",),
            "no worker has been on it for 7 min: see the sensor `due_crawls`",
            id="left alone",
        ),
        pytest.param(
            ("UPDATE crawler_tasks SET available_at = now() + interval '48 s'",),
            "waiting: the tasks left have failed before and are retried in 4",
            id="backed off",
        ),
        pytest.param((LEASED, IN_FLIGHT), "fetching", id="all in flight"),
        pytest.param((LEASED, ANSWERED.format(570, 80)), "waiting: every agent has used its requests", id="used up"),
        pytest.param(
            (LEASED, "UPDATE pool_state SET paused_until = now() + interval '3 min 30 s'"),
            "waiting: the marketplace throttles all agents, calls pause",
            id="storm",
        ),
        pytest.param(
            (LEASED, "UPDATE pool_state SET breaker_open_until = now() + interval '3 min'"),
            "waiting: the breaker is open until",
            id="breaker open",
        ),
        pytest.param(
            (LEASED, "UPDATE pool_state SET breaker_open_until = now()"),
            "waiting: the breaker is half-open, a trial request decides",
            id="breaker half-open",
        ),
        pytest.param((LEASED, RESTING), "waiting: no agent is available", id="all throttled"),
        pytest.param(
            (LEASED, RESTING, "UPDATE pool_state SET breaker_open_until = now()"),
            "waiting: no agent is available",
            id="no agent left for a trial",
        ),
        pytest.param((ENDED,), "everything is fetched; its change sets are being written", id="fetched"),
    ],
)
def test_what_a_running_crawl_does_or_waits_for_is_named(
    database: Database, look: Look, running: ExecutionId, state: tuple[str, ...], doing: str
) -> None:
    change(database, *state)
    shown = look("execution", "show", str(running))
    assert f"doing {doing}" in shown
    assert ("done about" in shown) != doing.startswith("no worker has been")


def test_a_paused_crawl_promises_nothing(database: Database, look: Look, running: ExecutionId) -> None:
    pause(database, running)
    shown = look("execution", "show", str(running))
    assert shown.startswith("s PAUSED 33 %")
    assert "paused: nothing is sent until `mustit execution resume`" in shown
    assert "done " not in shown


def test_a_crawl_that_found_no_plan_says_why(database: Database, look: Look, opened: ExecutionId) -> None:
    give_up(database, opened, "EXTERNAL_NETWORK", "no connection could be opened", utc_now())
    shown = look("execution", "show", str(opened))
    assert shown.startswith("s FAILED no task is planned\n")
    assert "why it failed no connection could be opened" in shown
    assert "next `mustit execution resume` goes on from what is stored" in shown
    assert "doing" not in shown


def test_a_crawl_cancelled_in_its_sweep_expects_nothing_more(
    database: Database, look: Look, running: ExecutionId
) -> None:
    change(database, "UPDATE crawling_schedule_executions SET sweep_status = 'PENDING', listed_count = 20000")
    cancel(database, running, utc_now())
    shown = look("execution", "show", str(running))
    assert shown.startswith("s CANCELLED 100 % (21 of 21 tasks, 14 failed)\n")
    assert "sweep broken off, 20,000 products listed: nothing is deleted" in shown
    assert "doing" not in shown


@pytest.mark.parametrize(
    ("state", "sweep"),
    [
        ((), "COMPLETE, 10 products listed"),
        (
            ("UPDATE crawling_schedule_executions SET sweep_status = 'INCOMPLETE', listed_count = 12",),
            "INCOMPLETE, 12 products listed, not all of them were on its pages: nothing is deleted",
        ),
        (
            (
                """UPDATE crawling_schedule_executions
                   SET sweep_status = 'INCOMPLETE', completed_tasks = 20, failed_tasks = 1""",
                """UPDATE crawler_tasks SET status = 'FAILED', error_code = 'EXTERNAL_HTTP_STATUS',
                   error_text = 'answered with 503' WHERE task_type = 'MINISHOP'""",
            ),
            "INCOMPLETE, 10 products listed, 1 of its pages failed: nothing is deleted",
        ),
        (
            ("UPDATE crawling_schedule_executions SET sweep_status = 'INCOMPLETE', product_limit = 5",),
            "INCOMPLETE, 10 products listed, limited to 5: nothing is deleted",
        ),
        (
            ("UPDATE crawling_schedule_executions SET sweep_status = 'INCOMPLETE', skipped_items = 3",),
            "INCOMPLETE, 10 products listed, 3 of its items could not be read: nothing is deleted",
        ),
        (
            ("UPDATE crawling_schedule_executions SET sweep_status = 'INCOMPLETE', listed_count = NULL",),
            "none: only products that are known are fetched",
        ),
    ],
    ids=["complete", "too few seen", "failed page", "limited", "skipped items", "without a sweep"],
)
def test_a_completed_crawl_says_what_its_sweep_is_worth(
    database: Database, look: Look, running: ExecutionId, state: tuple[str, ...], sweep: str
) -> None:
    change(database, ENDED, "UPDATE crawling_schedule_executions SET status = 'COMPLETED', ended_at = now()", *state)
    shown = look("execution", "show", str(running))
    assert shown.startswith("s COMPLETED 100 %")
    assert sweep in shown
    assert "doing" not in shown
