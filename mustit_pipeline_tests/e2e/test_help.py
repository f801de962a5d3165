"""The help of every command, read in this process: importing the commands once is enough for all of them."""

import re
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from mustit_pipeline.cli.app import COMMANDS, app
from mustit_pipeline_tests.e2e.conftest import Mustit, World


def _commands() -> Iterator[list[str]]:
    for name in COMMANDS:
        loaded: Any = typer.main.get_command(app)
        context = loaded.make_context("mustit", [name], resilient_parsing=True)
        _, command, _ = loaded.resolve_command(context, [name])
        children = getattr(command, "commands", None)
        if children is None:
            yield [name]
        else:
            yield from ([name, child] for child in children)


@pytest.mark.parametrize("command", list(_commands()), ids=" ".join)
def test_the_help_of_every_command_shows_an_example_of_it(command: list[str]) -> None:
    shown = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "200"})

    assert shown.exit_code == 0
    example = re.search(r"Example: (?:MUSTIT_\w+=\S+ )?mustit ([^\n]*)", shown.output)
    assert example is not None, shown.output
    assert example[1].split()[: len(command)] == command


def test_the_list_of_commands_says_the_same_as_the_agreed_names(world: World) -> None:
    shown = Mustit(world.mustit.home)("--help")

    assert shown.code == 0
    for name, (_, _, line) in COMMANDS.items():
        assert re.search(rf"│ {name} +{line[:30]}", shown.out), name


def test_the_version_is_that_of_the_package() -> None:
    shown = CliRunner().invoke(app, ["--version"])
    assert (shown.exit_code, shown.output) == (0, f"mustit_pipeline {version('mustit-pipeline')}\n")
