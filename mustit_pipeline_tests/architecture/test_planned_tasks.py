"""A task is planned for the transport that carries it: PUBLISHED without a message it would wait until it is missed."""

import ast
from pathlib import Path

import mustit_pipeline

ROOT = Path(mustit_pipeline.__file__).parent


def unplanned(source: str) -> list[int]:
    """The lines that add tasks without the state that fits the transport."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == "tasks.add"
        and "planned_status" not in ast.unparse(node)
    ]


def test_tasks_are_added_in_the_state_that_fits_their_transport() -> None:
    found = {
        str(file.relative_to(ROOT)): lines
        for file in ROOT.rglob("*.py")
        if (lines := unplanned(file.read_text(encoding="utf-8")))
    }
    assert found == {}


def test_the_rule_sees_a_call_that_breaks_it() -> None:
    assert unplanned("tasks.add(c, home, pages)\ntasks.add(c, home, pages, planned_status(settings))") == [1]
