"""Numbers on the command line have bounds: what no column holds is refused before anybody is asked."""

from collections.abc import Iterator
from typing import Any

import pytest
import typer

from mustit_pipeline.cli.app import COMMANDS, app
from mustit_pipeline.cli.list_options import LARGEST_NUMBER

# The domain itself refuses what is no number of a product.
BOUND_ELSEWHERE = {"item_no"}


def _numbers() -> Iterator[Any]:
    """Every command with each of its options and arguments that is a number."""
    for name in COMMANDS:
        loaded: Any = typer.main.get_command(app)
        _, command, _ = loaded.resolve_command(loaded.make_context("mustit", [name], resilient_parsing=True), [name])
        for child in getattr(command, "commands", {"": command}).values():
            for parameter in child.params:
                if parameter.type_descriptor.annotation in (int, float) and parameter.name not in BOUND_ELSEWHERE:
                    yield pytest.param(child, parameter, id=f"{name} {child.name} {parameter.name}")


def _words(command: Any, number: Any, value: str) -> list[str]:
    """What is typed for this number, and 1 for whatever else the command asks for."""
    words = [*number.opts, value] if number.param_type_name == "option" else []
    given = [value if one is number else "1" for one in command.params if one.param_type_name == "argument"]
    return [*words, "--", *given]


@pytest.mark.parametrize(("command", "number"), list(_numbers()))
def test_a_number_beyond_its_bounds_is_refused(command: Any, number: Any) -> None:
    assert number.max is not None
    assert number.max <= LARGEST_NUMBER
    for value in (str(number.max), str(number.min)):
        command.make_context(command.name, _words(command, number, value))
    for value in (str(number.max + 1), str(number.min - 1), "99999999999999999999", "9" * 5000, "nan"):
        with pytest.raises(typer.BadParameter):
            command.make_context(command.name, _words(command, number, value))


def test_the_commands_have_such_numbers() -> None:
    assert len(list(_numbers())) > 15
