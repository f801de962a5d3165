"""Every `mustit` command that a document names can be typed as it stands there."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

from mustit_pipeline.cli.app import app
from mustit_pipeline.settings import Settings

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"```(?:sh)?\n(.*?)```", re.DOTALL)
# Where a document leaves a value to the reader that has to be of a kind.
STAND_INS = {"ITEM": "118005032", "A": "1", "B": "2", "FILE": __file__, "sellers.csv": __file__}
INLINE = re.compile(r"`(mustit(?: [^`]+)?)`")


def commands_in(page: str) -> list[str]:
    """Lines of shell blocks and inline code that begin with mustit."""
    lines = [line.strip() for block in FENCE.findall(page) for line in block.splitlines()]
    return [line for line in lines if line.startswith("mustit ")] + INLINE.findall(FENCE.sub("", page))


def problem_with(line: str) -> str | None:
    """Why a command cannot be typed, or nothing; a name alone only has to be one."""
    words = [STAND_INS.get(word, word) for word in shlex.split(line.replace("[", "").replace("]", ""))][1:]
    command: Any = typer.main.get_command(app)
    name = "mustit"
    try:
        while isinstance(command, TyperGroup) and words:
            name, command, words = command.resolve_command(command.context_class(command, info_name=name), words)
        if words:
            command.make_context(name, words)
    except Exception as error:
        if type(error).__module__.split(".")[0] not in ("click", "typer"):
            raise
        return f"{line}: {getattr(error, 'message', error)}"
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_that_a_document_names_can_be_typed(page: Path) -> None:
    found = commands_in(page.read_text())

    assert [problem for line in found if (problem := problem_with(line))] == []


@pytest.mark.parametrize(
    "line",
    [
        "mustit nothing",
        "mustit seller nothing",
        "mustit execution show --json",
        "mustit crawl dmont --nothing",
        "mustit backfill --mode x",
    ],
)
def test_a_command_that_cannot_be_typed_is_noticed(line: str) -> None:
    assert problem_with(line) is not None


def test_the_operations_guide_and_the_runbooks_name_commands() -> None:
    for page in ("operations.md", "runbooks.md"):
        assert len(commands_in((ROOT / "docs" / page).read_text())) > 5


def test_every_setting_that_a_document_names_exists() -> None:
    known = {f"MUSTIT_{name.upper()}" for name in Settings.model_fields}
    for page in PAGES:
        named = set(re.findall(r"\bMUSTIT_[A-Z_]*[A-Z]\b", page.read_text()))
        assert named <= known, page.name


def test_an_example_that_registers_a_seller_has_said_of_which_marketplace_and_in_which_home() -> None:
    blocks = [block for page in PAGES for block in FENCE.findall(page.read_text()) if "mustit seller add" in block]

    assert len(blocks) > 1
    for block in blocks:
        before = block.partition("mustit ")[0]
        assert {"MUSTIT_BASE_URL=", "MUSTIT_PRODUCT_SERVER_URL=", "MUSTIT_HOME="} <= set(
            re.findall(r"MUSTIT_\w+=", before)
        )
