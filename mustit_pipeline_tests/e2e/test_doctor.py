"""`mustit doctor` names what is wrong and how to mend it."""

import base64
import os
import re
import subprocess
import time
from collections.abc import Generator
from pathlib import Path

import pytest
from dagster._daemon.types import DaemonHeartbeat
from sqlalchemy import make_url, text

from mustit_pipeline.cli.runtime import dagster_instance
from mustit_pipeline.foundation.database import make_engine
from mustit_pipeline.simulator.control import ProductServerControl
from mustit_pipeline.simulator.process import start_product_server
from mustit_pipeline_tests.conftest import JWT_SECRET, dagster_beside
from mustit_pipeline_tests.e2e.asking import ask, explained, settings_of
from mustit_pipeline_tests.e2e.conftest import NOWHERE, Answer, World, opened_world
from mustit_pipeline_tests.integration.crawls import crawl
from mustit_pipeline_tests.integration.foundation.upgrading import migrate

RUNBOOKS = Path(__file__).parents[2] / "docs" / "runbooks.md"
OTHER_KEY = base64.b64encode(b"x" * 32).decode()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Generator[World]:
    """A home of its own: what other tests leave behind is a problem too."""
    with opened_world(tmp_path_factory.mktemp("doctor")) as opened:
        yield opened


def _problems(answer: Answer) -> dict[str, str]:
    """What is wrong, each with its detail and its remedy."""
    wrong = [finding for finding in answer.document if finding["health"] == "problem"]
    assert all(finding["remedy"] for finding in wrong)
    return {finding["subject"]: f"{finding['detail']} {finding['remedy']}" for finding in wrong}


def test_a_daemon_that_does_not_run_and_unreachable_ends_are_named(world: World) -> None:
    found = explained(world, "doctor", "--json", MUSTIT_BASE_URL=NOWHERE, MUSTIT_PRODUCT_SERVER_URL=NOWHERE)

    assert found.code == 1
    problems = _problems(found)
    assert problems.keys() == {"Dagster daemon", "marketplace", "product server"}
    assert "mustit up" in problems["Dagster daemon"]
    assert "MUSTIT_BASE_URL" in problems["marketplace"]
    assert "MUSTIT_PRODUCT_SERVER_URL" in problems["product server"]


def test_the_last_line_counts_problems_and_warnings(world: World) -> None:
    blocked = ask(world, "agents", "list", "--json").document[0]["agentId"]
    before = ask(world, "doctor")
    ask(world, "agents", "block", str(blocked))
    warned = ask(world, "doctor")
    ask(world, "agents", "unblock", str(blocked))

    assert (before.out.splitlines()[-1], before.code) == ("1 problems, 0 warnings.", 1), "the daemon does not run"
    assert (warned.out.splitlines()[-1], warned.code) == ("1 problems, 1 warnings.", 1)


def test_what_breaks_a_promise_is_a_problem(world: World) -> None:
    world.register("late", 1)
    world.register("promised", 1)
    crawl(world.database, settings_of(world), "promised")
    with world.database.transaction() as connection:
        connection.execute(text("UPDATE product_outbox SET status = 'FAILED' WHERE seller_id = 'promised'"))
        connection.execute(text("UPDATE sellers SET created_at = now() - interval '10 days' WHERE seller_id = 'late'"))

    problems = _problems(ask(world, "doctor", "--json"))

    assert problems.keys() == {"Dagster daemon", "outbox", "check sellers_on_time"}
    assert "mustit outbox retry" in problems["outbox"]
    assert "late (" in problems["check sellers_on_time"]


def test_an_unreachable_database_is_named_and_its_password_is_not(world: World) -> None:
    address = "postgresql://mustit:geheim@127.0.0.1:9"

    found = explained(
        world,
        "doctor",
        "--json",
        MUSTIT_DATABASE_URL=f"{address}/mustit",
        MUSTIT_DAGSTER_DATABASE_URL=f"{address}/dagster",
        MUSTIT_TOKEN_KEY=OTHER_KEY,
        MUSTIT_JWT_SECRET=JWT_SECRET,
    )

    assert found.code == 1
    assert "MUSTIT_DATABASE_URL" in _problems(found)["PostgreSQL"]
    assert "geheim" not in found.out + found.err


def test_a_database_without_schema_and_a_missing_dagster_database_are_named(
    world: World, empty_database_url: str
) -> None:
    environment = {
        "MUSTIT_DATABASE_URL": empty_database_url,
        "MUSTIT_DAGSTER_DATABASE_URL": "postgresql://mustit@127.0.0.1:9/dagster",
        "MUSTIT_TOKEN_KEY": OTHER_KEY,
        "MUSTIT_JWT_SECRET": JWT_SECRET,
    }

    found = ask(world, "doctor", "--json", **environment)
    listed = explained(world, "seller", "list", "--json", **environment)

    problems = _problems(found)
    assert "mustit db upgrade" in problems["schema"]
    assert "MUSTIT_DAGSTER_DATABASE_URL" in problems["Dagster"]
    assert (listed.code, listed.document["errorCode"]) == (1, "CONFLICT_SCHEMA_VERSION")


def test_an_old_schema_is_named_and_two_upgrades_at_once_mend_it(world: World, empty_database_url: str) -> None:
    environment = {
        "MUSTIT_DATABASE_URL": empty_database_url,
        "MUSTIT_DAGSTER_DATABASE_URL": dagster_beside(empty_database_url),
        "MUSTIT_TOKEN_KEY": OTHER_KEY,
        "MUSTIT_JWT_SECRET": JWT_SECRET,
    }
    engine = make_engine(make_url(empty_database_url))
    with engine.begin() as connection:
        migrate(connection, "0001")
    engine.dispose()

    old = ask(world, "doctor", "--json", **environment)
    both = [world.mustit.start("db", "upgrade", "--json", **environment) for _ in range(2)]
    said = [process.communicate(timeout=60) for process in both]
    mended = ask(world, "doctor", "--json", **environment)

    assert "older schema 0001" in _problems(old)["schema"]
    assert [process.returncode for process in both] == [0, 0], said
    assert "schema" not in _problems(mended)
    assert "user agents" not in _problems(mended)


def test_a_product_server_that_refuses_our_key_is_named(world: World, tmp_path: Path) -> None:
    with start_product_server(state=tmp_path, token="the-right-one") as server:
        address = {"MUSTIT_PRODUCT_SERVER_URL": server.url}
        refused = ask(world, "doctor", "--json", MUSTIT_PRODUCT_SERVER_TOKEN="a-wrong-one", **address)
        accepted = ask(world, "doctor", "--json", MUSTIT_PRODUCT_SERVER_TOKEN="the-right-one", **address)

    assert "MUSTIT_PRODUCT_SERVER_TOKEN" in _problems(refused)["product server"]
    assert "a-wrong-one" not in refused.out + refused.err
    assert "product server" not in _problems(accepted)


@pytest.mark.parametrize(
    ("status", "then"),
    [
        (500, "5 such answers make an event FAILED: once it is back, `mustit outbox retry --status FAILED`"),
        (503, "Events wait, and are sent by themselves"),
        (429, "Events wait, and are sent by themselves"),
    ],
)
def test_a_product_server_that_answers_with_errors_is_named_with_what_becomes_of_the_events(
    world: World, tmp_path: Path, status: int, then: str
) -> None:
    with start_product_server(state=tmp_path) as server, ProductServerControl(server.url) as control:
        control.fault("status", "products", status=status)
        found = ask(world, "doctor", "--json", MUSTIT_PRODUCT_SERVER_URL=server.url)

    told = _problems(found)["product server"]
    assert f"answers {status}" in told
    assert then in told


def test_a_marketplace_whose_answer_never_ends_holds_doctor_up_no_longer_than_its_head(world: World) -> None:
    fault = world.market.fault("drip", "session", seconds=60)
    began = time.monotonic()
    found = ask(world, "doctor", "--json")
    world.market.clear_faults(fault)

    assert time.monotonic() - began < 30
    assert "marketplace" not in _problems(found)


@pytest.mark.parametrize("token", ["s3cret-한글", "s3cret\r\nX-Role: admin"])
def test_a_key_that_fits_in_no_header_is_named_and_never_shown(world: World, token: str) -> None:
    found = ask(world, "doctor", "--json", MUSTIT_PRODUCT_SERVER_TOKEN=token)

    assert "MUSTIT_PRODUCT_SERVER_TOKEN: takes printable ASCII" in _problems(found)["settings"]
    assert "s3cret" not in found.out + found.err


def test_the_remedy_for_missing_agents_brings_them_back(world: World, database_url: str) -> None:
    environment = {
        "MUSTIT_DATABASE_URL": database_url,
        "MUSTIT_DAGSTER_DATABASE_URL": dagster_beside(database_url),
        "MUSTIT_TOKEN_KEY": OTHER_KEY,
        "MUSTIT_JWT_SECRET": JWT_SECRET,
    }
    engine = make_engine(make_url(database_url))
    with engine.begin() as connection:
        connection.execute(text("TRUNCATE user_agents CASCADE"))
    engine.dispose()

    mended = explained(world, "db", "upgrade", **environment)
    agents = explained(world, "agents", "status", "--json", **environment)

    assert mended.code == 0
    assert "50 built-in user agents" in mended.out
    assert agents.document["availableCount"] == 50


def test_a_key_that_does_not_open_the_stored_tokens_is_named(world: World) -> None:
    world.register("keyed", 1)
    assert explained(world, "crawl", "keyed").code == 0

    found = ask(world, "doctor", "--json", MUSTIT_TOKEN_KEY=OTHER_KEY)

    assert "MUSTIT_TOKEN_KEY" in _problems(found)["token key"]


def test_two_rotations_by_the_runbook_open_what_was_sealed_before_each(world: World) -> None:
    world.register("rotated", 1)
    environment = {"MUSTIT_HOME": str(world.mustit.home)}
    settings = settings_of(world)
    for sealed_by, day in (("k0", "2026-11-01"), ("2026-11-01", "2026-12-01")):
        crawl(world.database, settings, "rotated")
        with world.database.reading() as connection:
            used = connection.execute(
                text("SELECT session_key_id FROM user_agents WHERE session IS NOT NULL")
            ).scalars()
            assert sealed_by in set(used)

        environment["MUSTIT_TOKEN_KEY"] = _rotated(environment, day)
        settings = settings_of(world, token_key=environment["MUSTIT_TOKEN_KEY"])

        found = ask(world, "doctor", "--json", **environment)
        [said] = [one for one in found.document if one["subject"] == "token key"]
        assert said["health"] == "ok", said


def _rotated(environment: dict[str, str], day: str) -> str:
    """The key after the runbook's own lines were typed on that day."""
    [block] = [one for one in re.findall(r"```sh\n(.*?)```", RUNBOOKS.read_text(), re.DOTALL) if "OLD_KEY=" in one]
    lines = [line for line in block.splitlines() if not line.startswith("mustit ")]
    script = "\n".join([f"date() {{ echo {day}; }}", *lines, 'printf %s "$MUSTIT_TOKEN_KEY"'])
    given = {**os.environ, **environment}
    return subprocess.run(["sh", "-euc", script], env=given, capture_output=True, text=True, check=True).stdout


def test_fetched_changes_that_are_not_processed_are_named_until_recover_has_run(world: World) -> None:
    world.register("left", 1)
    crawl(world.database, settings_of(world), "left")
    with world.database.transaction() as connection:
        connection.execute(text("UPDATE product_raw_data SET status = 'PENDING' WHERE seller_id = 'left'"))
        connection.execute(text("UPDATE crawling_schedule_executions SET updated_at = now() - interval '1 hour'"))

    [found] = [one for one in ask(world, "doctor", "--json").document if one["subject"] == "fetched changes"]
    assert (found["health"], found["detail"]) == ("warning", "not processed: those of left")
    assert "mustit recover" in found["remedy"]

    assert explained(world, "recover", "--json").document["processedSellers"] == 1
    assert "fetched changes" not in {one["subject"] for one in ask(world, "doctor", "--json").document}


def test_hosts_that_would_keep_what_all_should_see_are_told_so(world: World) -> None:
    environment = {
        "MUSTIT_DATABASE_URL": "postgresql://mustit@127.0.0.1:9/mustit",
        "MUSTIT_DAGSTER_DATABASE_URL": "postgresql://mustit@127.0.0.1:9/dagster",
        "MUSTIT_TOKEN_KEY": OTHER_KEY,
        "MUSTIT_JWT_SECRET": JWT_SECRET,
        "MUSTIT_REDIS_URL": "redis://127.0.0.1:9",
        "MUSTIT_RUN_LAUNCHER": "celery",
    }
    shared = {"MUSTIT_LAKE_URI": "s3://bucket/lake", "MUSTIT_COMPUTE_LOGS_URI": "/mnt/shared/logs"}

    untold = {one["subject"]: one for one in ask(world, "doctor", "--json", **environment).document}
    told = {one["subject"] for one in ask(world, "doctor", "--json", **environment, **shared).document}

    assert (untold["lake"]["health"], untold["output of runs"]["health"]) == ("problem", "warning")
    assert "MUSTIT_LAKE_URI" in untold["lake"]["remedy"]
    assert "MUSTIT_COMPUTE_LOGS_URI" in untold["output of runs"]["remedy"]
    assert not {"lake", "output of runs"} & told


def test_crawls_that_leave_relay_and_recovery_no_place_are_named(world: World) -> None:
    crowded = ask(world, "doctor", "--json", MUSTIT_CRAWLS_AT_ONCE="12").document

    [found] = [one for one in crowded if one["subject"] == "places for runs"]
    assert (found["health"], found["remedy"]) == ("warning", "Set MUSTIT_RUNS_AT_ONCE to 18 or more.")


def test_a_daemon_that_stopped_minutes_ago_is_not_called_running(world: World) -> None:
    """Dagster calls a daemon healthy for half an hour after its last heartbeat."""

    def heard(ago: float) -> None:
        with dagster_instance(settings_of(world)) as instance:
            for name in instance.get_required_daemon_types():
                instance.add_daemon_heartbeat(DaemonHeartbeat(time.time() - ago, name, "test"))

    heard(1200)
    stopped = {found["subject"]: found for found in explained(world, "doctor", "--json").document}
    heard(5)
    running = {found["subject"]: found for found in explained(world, "doctor", "--json").document}
    heard(86400)

    assert stopped["Dagster daemon"]["health"] == "problem"
    assert running["Dagster daemon"]["health"] == "ok"
    # It may have stopped since then.
    assert re.fullmatch(r"running, last heartbeat \d+ s ago", running["Dagster daemon"]["detail"])
