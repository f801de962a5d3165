"""What a person sees of a crawl or a relay under way: it moves, says when it will end, and what it waits for."""

import re
import signal
from collections.abc import Generator
from itertools import pairwise

import pytest
from sqlalchemy import text

from mustit_pipeline_tests.e2e.asking import explained
from mustit_pipeline_tests.e2e.conftest import COMMAND, World, opened_world
from mustit_pipeline_tests.e2e.terminal import KEYS, Terminal

COUNT = re.compile(r"(\d+) of (\d+) tasks \(\d+ %\)")
SENT = re.compile(r"relaying .* (\d+) of (\d+) events \(\d+ %\)")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Generator[World]:
    """A home of its own: how slowly its servers answer concerns no other test."""
    with opened_world(tmp_path_factory.mktemp("progress")) as opened:
        yield opened


@pytest.fixture
def slow(world: World) -> Generator[None]:
    world.market.settings(latencyMs=150)
    yield
    world.market.settings(latencyMs=0)


def test_the_bar_of_a_relay_moves_while_its_events_are_sent(world: World) -> None:
    """A Dagster run in the same process, as a crawl is: it must leave the terminal alone too."""
    world.register("seen sent", 40)
    assert explained(world, "crawl", "seen sent").code == 0
    fault = world.receiver.fault("slow", "events", seconds=0.5)
    environment = world.mustit.variables(MUSTIT_RELAY_CONCURRENT_SENDS="4")
    try:
        with Terminal([COMMAND, "relay"], environment) as terminal:
            code = terminal.end()
    finally:
        world.receiver.clear_faults(fault)

    assert code == 0, terminal.text
    counts = [int(found[1]) for _, line in terminal.lines() if (found := SENT.search(line))]
    assert sum(after > before for before, after in pairwise(counts)) > 2, terminal.text


@pytest.mark.usefixtures("slow")
def test_the_bar_of_a_crawl_moves_and_says_how_fast_and_until_when(world: World) -> None:
    """Dagster had taken the terminal away: the bar stood at 0 until everything was done."""
    world.register("seen moving", 80)
    environment = world.mustit.variables(MUSTIT_MAX_CONCURRENT_REQUESTS="4")
    with Terminal([COMMAND, "crawl", "seen moving"], environment) as terminal:
        code = terminal.end()

    assert code == 0, terminal.text
    counts = [int(found[1]) for _, line in terminal.lines() if (found := COUNT.search(line))]
    assert sum(after > before for before, after in pairwise(counts)) > 4
    assert re.search(r"\d+ requests, \d+\.\d a second, done in \d+", terminal.text)
    assert "fetching products" in terminal.text


@pytest.mark.usefixtures("slow")
def test_a_crawl_into_a_pipe_tells_the_same_in_a_line_now_and_then(world: World) -> None:
    world.register("piped", 80)

    crawled = explained(world, "crawl", "piped", "--json", MUSTIT_MAX_CONCURRENT_REQUESTS="4")

    assert crawled.code == 0
    assert crawled.document["completedTasks"] == 161
    told = [line for line in crawled.err.splitlines() if line.startswith("crawling piped: ")]
    assert all("requests" in line for line in told)
    assert any(COUNT.search(line) for line in told)
    assert any(line.endswith("; fetching products") for line in told)
    # Four at once, 150 ms each: it takes at least 6 s, and tells of it each second.
    assert 2 < len(told) < 161 / 2
    assert "\x1b" not in crawled.err


def test_a_crawl_that_waits_says_for_what_and_until_when(world: World) -> None:
    """The words for each state are those of `execution show`."""
    world.register("waits", 5)
    with world.database.transaction() as connection:
        connection.execute(text("UPDATE pool_state SET paused_until = now() + interval '10 min'"))
    said = r"waiting: the marketplace throttles all agents, calls pause until (\d{4}-\d\d-\d\d )?\d\d:\d\d"
    try:
        with Terminal([COMMAND, "crawl", "waits"], world.mustit.variables()) as terminal:
            terminal.until(lambda: re.search(said, terminal.text) is not None)
            terminal.press(KEYS["ctrl-c"])
            assert terminal.end() == 130
    finally:
        with world.database.transaction() as connection:
            connection.execute(text("UPDATE pool_state SET paused_until = NULL"))


def test_a_crawl_without_a_session_says_so(world: World) -> None:
    world.register("no session", 5)
    with world.database.transaction() as connection:
        connection.execute(
            text("UPDATE user_agents SET session = NULL, session_key_id = NULL, token_expires_at = NULL")
        )
    fault = world.market.fault("5xx", "session")
    try:
        with Terminal([COMMAND, "crawl", "no session"], world.mustit.variables()) as terminal:
            terminal.until(lambda: "no agent has a session token" in terminal.text)
            terminal.process.send_signal(signal.SIGTERM)
            assert terminal.end() == 143
    finally:
        world.market.clear_faults(fault)
