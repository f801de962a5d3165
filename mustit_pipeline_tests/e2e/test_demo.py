"""`mustit demo` proves itself, and goes on with the world that its home has."""

import re
import signal
from pathlib import Path

from mustit_pipeline_tests.e2e.asking import explained
from mustit_pipeline_tests.e2e.conftest import WIDE_OPEN, Mustit

ROOT = Path(__file__).parents[2]


def rows(printed: str) -> dict[str, str]:
    """The rows of the demo's table, in their order."""
    return dict(re.findall(r"^│ (\S.*?) +│ (\S+) +│$", printed, re.MULTILINE))


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
    """And its table has the rows that the README shows."""
    mustit = Mustit(tmp_path / "home", WIDE_OPEN)

    simulate(mustit)
    # As in all settings, empty is not set.
    first = mustit("demo", "--sellers", "1", MUSTIT_BASE_URL="", MUSTIT_PRODUCT_SERVER_URL="")
    second = explained(mustit, "demo", "--json", "--sellers", "1")
    simulate(mustit)

    assert (first.code, second.code) == (0, 0), first.err + second.err
    shown = rows(first.out)
    assert (shown["differences"], shown["failed tasks"]) == ("0", "0")
    assert (shown["changes: CREATED"], shown["changes: DELETED"]) == (str(60 + 2), "2")
    assert list(shown) == list(rows((ROOT / "README.md").read_text()))
    assert (second.document["differences"], second.document["failedTasks"]) == (0, 0)
    assert (second.document["changes"]["CREATED"], second.document["changes"]["DELETED"]) == (2, 2)


def test_the_demo_refuses_to_change_servers_that_are_not_its_own(tmp_path: Path) -> None:
    refused = explained(Mustit(tmp_path / "home"), "demo", MUSTIT_BASE_URL="http://127.0.0.1:9")

    assert refused.code == 1
    assert "MUSTIT_BASE_URL" in refused.err
    assert not (tmp_path / "home").exists()
