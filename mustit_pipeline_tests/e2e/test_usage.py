"""Wrong usage of every command, by what each says of itself: exit 2, and a document where one is asked for."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from enum import Enum
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import typer

from mustit_pipeline.cli.app import COMMANDS, app, run
from mustit_pipeline_tests.e2e.conftest import COMMAND

Command = tuple[list[str], Any]


def _commands() -> Iterator[Command]:
    loaded: Any = typer.main.get_command(app)
    for name in COMMANDS:
        context = loaded.make_context("mustit", [name], resilient_parsing=True)
        _, command, _ = loaded.resolve_command(context, [name])
        children = getattr(command, "commands", None)
        if children is None:
            yield [name], command
        else:
            yield from (([name, child], found) for child, found in children.items())


def _wrong(command: Any) -> Iterator[list[str]]:
    """Ways to misuse a command that each take one thing away, or add one."""
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    required = [one for one in arguments if one.required]
    given = ["1"] * len(required)
    yield [*given, "--no-such-option"]
    if not any(one.nargs == -1 for one in arguments):
        yield [*["1"] * (len(arguments) + 1)]
    if required:
        yield [*given[1:]]
    for option in command.params:
        if option.param_type_name != "option":
            continue
        name = option.opts[0]
        if not option.is_flag:
            yield [*given, name]
        if not option.is_flag and _is_narrow(option.bare_type):
            yield [*given, name, "not\u0001a value"]
        if option.is_flag:
            yield [*given, f"{name}=5"]


def _is_narrow(kind: Any) -> bool:
    """Whether it takes numbers or choices, not any text."""
    return kind in (int, float) or (isinstance(kind, type) and issubclass(kind, Enum))


CASES = [pytest.param(words, list(_wrong(command)), id=" ".join(words)) for words, command in _commands()]


def _asked(arguments: list[str], home: Path) -> tuple[int, str, str]:
    out, err = StringIO(), StringIO()
    with (
        patch.dict(os.environ, {"PATH": os.environ["PATH"], "MUSTIT_HOME": str(home)}, clear=True),
        patch.object(sys, "argv", [COMMAND, *arguments]),
        redirect_stdout(out),
        redirect_stderr(err),
        pytest.raises(SystemExit) as end,
    ):
        run()
    assert isinstance(end.value.code, int)
    return end.value.code, out.getvalue(), err.getvalue()


@pytest.mark.parametrize(("words", "cases"), CASES)
def test_wrong_usage_of_any_command_exits_2_as_text_and_as_a_document(
    words: list[str], cases: list[list[str]], tmp_path: Path
) -> None:
    code, out, err = _asked([*words, *cases[0]], tmp_path)
    assert (code, out) == (2, "")
    assert "Usage: " in err

    for arguments in cases:
        code, out, _ = _asked([*words, "--json", *arguments], tmp_path)
        document = json.loads(out)
        assert (code, document["errorCode"]) == (2, "VALIDATION_USAGE"), arguments
        # Every command has it; one that lacks it would be refused for that.
        assert not document["message"].startswith("No such option: --json")
    # Nothing was started for it.
    assert not list(tmp_path.iterdir())
