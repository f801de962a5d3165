"""`mustit demo` proves itself, and goes on with the world that its home has."""

import signal
from pathlib import Path

from mustit_pipeline_tests.e2e.asking import explained
from mustit_pipeline_tests.e2e.conftest import WIDE_OPEN, Mustit


def simulate(mustit: Mustit) -> None:
    """A simulated marketplace of this home, until it listens."""
    with mustit.start("simulate", "marketplace", "--json") as process:
        try:
            assert process.stdout is not None
            assert "url" in process.stdout.readline(), process.communicate()[1]
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0
        finally:
            process.kill()


def test_the_demo_ends_equal_and_goes_on_with_the_world_that_is_there(tmp_path: Path) -> None:
    mustit = Mustit(tmp_path / "home", WIDE_OPEN)

    simulate(mustit)
    # As in all settings, empty is not set.
    first = mustit("demo", "--json", "--sellers", "1", MUSTIT_BASE_URL="", MUSTIT_PRODUCT_SERVER_URL="")
    second = explained(mustit, "demo", "--json", "--sellers", "1")
    simulate(mustit)

    for answer in (first, second):
        assert answer.code == 0, answer.err
        assert (answer.document["differences"], answer.document["failedTasks"]) == (0, 0)
    assert first.document["changes"]["CREATED"] == 60 + 2
    assert second.document["changes"]["CREATED"] == 2
    assert first.document["changes"]["DELETED"] == second.document["changes"]["DELETED"] == 2


def test_the_demo_refuses_to_change_servers_that_are_not_its_own(tmp_path: Path) -> None:
    refused = explained(Mustit(tmp_path / "home"), "demo", MUSTIT_BASE_URL="http://127.0.0.1:9")

    assert refused.code == 1
    assert "MUSTIT_BASE_URL" in refused.err
    assert not (tmp_path / "home").exists()
