"""What commands print of what others wrote."""

from uuid import uuid4

import pytest
from rich.console import RenderableType

from mustit_pipeline.catalog.sql.history import ChangeSet
from mustit_pipeline.cli.list_options import cut, make_table
from mustit_pipeline.cli.output import lasting, out, print_fields, print_table, printable
from mustit_pipeline.cli.values import change_set_cell
from mustit_pipeline.domain.states import LifeCycle
from mustit_pipeline.foundation.clock import utc_now

# It sets the title of the window, clears the screen, and turns what follows around; as single characters too.
OBEYED = "\x1b]0;title\x07\x1b[2J\x9b2J\u202e\x08\x00"
LIFE_CYCLES = [LifeCycle.CREATED, LifeCycle.UPDATED]


def change_set(life_cycle: LifeCycle) -> ChangeSet:
    change = {"type": "PRODUCT_INFO", "field": "name", "old": "", "new": OBEYED}
    return ChangeSet(uuid4(), "s", 1, 1, life_cycle, ["PRODUCT_INFO"], [change], uuid4(), utc_now(), OBEYED)


@pytest.mark.parametrize(
    "shown",
    [
        make_table(["a"], ["b"], [(OBEYED, cut(OBEYED))]),
        cut(OBEYED),
        *map(change_set_cell, map(change_set, LIFE_CYCLES)),
    ],
)
def test_a_terminal_obeys_nothing_that_a_seller_wrote(
    shown: RenderableType, capsys: pytest.CaptureFixture[str]
) -> None:
    out.print(shown)
    assert_not_obeyed(capsys)


def test_neither_does_it_in_fields_and_tables(capsys: pytest.CaptureFixture[str]) -> None:
    print_fields({"name": OBEYED})
    print_table("", ["a"], [[OBEYED]])
    assert_not_obeyed(capsys)


def test_lines_spaces_and_joined_characters_stay_as_they_are() -> None:
    for text in ("여성 백팩\n둘째 줄\t끝", "\u3000\xa0", "\U0001f468\u200d\U0001f469", "é"):
        assert printable(text) == text


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.4, "0 s"), (61, "1 min 1 s"), (3600, "1 h"), (11 * 3600 + 1, "11 h"), (90_000, "1 d 1 h"), (86_700, "1 d")],
)
def test_a_time_span_leaves_out_what_is_too_small_to_matter(seconds: float, said: str) -> None:
    """`11 h 1 s` looked as exact as it was wrong."""
    assert lasting(seconds) == said


def assert_not_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    shown = capsys.readouterr().out
    assert "]0;title" in shown
    assert not set(shown) & set("\x1b\x07\x9b\u202e\x08\x00")
