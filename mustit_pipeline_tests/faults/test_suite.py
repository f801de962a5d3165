"""The long suite itself: one broken scenario, or a Ctrl-C, takes nothing from what the others have shown."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from subprocess import TimeoutExpired
from typing import cast

import pytest

from mustit_pipeline_tests.faults.__main__ import INTERRUPTED, main
from mustit_pipeline_tests.faults.scenarios import Numbers, Size
from mustit_pipeline_tests.faults.world import World


@contextmanager
def no_world() -> Generator[World]:
    """What these scenarios need of one."""
    yield cast(World, None)


def never_ends(world: World, size: Size) -> Numbers:
    raise TimeoutExpired(["mustit", "up"], 120)


def holds_well(world: World, size: Size) -> Numbers:
    return {"effects": 3}


def is_interrupted(world: World, size: Size) -> Numbers:
    raise KeyboardInterrupt


def test_whatever_a_scenario_raises_breaks_it_alone_and_ctrl_c_still_shows_what_there_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "chaos.json"

    code = main((never_ends, holds_well, is_interrupted, holds_well), ["--quick", "--output", str(output)], no_world)

    assert code == INTERRUPTED
    found = [{**one, "seconds": None} for one in json.loads(output.read_text())]
    reason = "TimeoutExpired: Command '['mustit', 'up']' timed out after 120 seconds"
    assert found == [
        {"scenario": "never_ends", "passed": False, "reason": reason, "seconds": None},
        {"scenario": "holds_well", "passed": True, "numbers": {"effects": 3}, "seconds": None},
    ]
    shown = capsys.readouterr().out
    assert "3/4 is interrupted" in shown
    assert "broken" in shown
    assert "effects 3" in shown


def test_a_suite_in_which_something_broke_ends_with_an_error(tmp_path: Path) -> None:
    assert main((never_ends,), ["--output", str(tmp_path / "chaos.json")], no_world) == 1
