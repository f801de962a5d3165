"""Two versions of a product on screens of any width."""

from datetime import UTC, datetime
from io import StringIO
from typing import Any
from uuid import UUID

import pytest
from rich.cells import cell_len
from rich.console import Console

from mustit_pipeline.catalog.diff import FieldChange
from mustit_pipeline.catalog.history import Comparison
from mustit_pipeline.catalog.sql.history import ChangeSet, Delivery, KnownProduct, ProductHashes, Version
from mustit_pipeline.cli.comparison import print_comparison
from mustit_pipeline.domain.states import ChangeType, LifeCycle

NOW = datetime(2026, 11, 16, tzinfo=UTC)
OBEYED = "\x1b]0;title\x07red\x1b[2J"
NAMES = ["discountPrice", "options[4134224619].sizeGuide", "shipping.averageDelivery", "category.medium"]


def version(number: int) -> Version:
    changed = ChangeSet(UUID(int=9), "dmont", 1, number, LifeCycle.UPDATED, [], [], UUID(int=number), NOW, None)
    return Version(changed, Delivery(None, None, superseded=False, completed_at=None), None)


def lines(changes: list[FieldChange], columns: int, *, full: bool = False) -> list[str]:
    product = KnownProduct("dmont", 1, 2, 2, ProductHashes("a", "b", "c", "d", "d"), 0, NOW, NOW, None, None)
    console = Console(file=StringIO(), width=columns)
    print_comparison(console, Comparison(product, version(1), version(2), changes), full=full)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_names_of_fields_break_at_dots_alone(columns: int) -> None:
    values = ("평균 배송 1일 소요", "평균 배송 3일 소요")
    shown = lines([FieldChange(ChangeType.PRODUCT_INFO, name, *values) for name in NAMES], columns)

    assert max(cell_len(line) for line in shown) <= columns
    words = {word for line in shown for word in line.split()}
    parts = {part for name in NAMES for part in name.replace(".", ". ").split()}
    assert words >= (set(NAMES) if columns == 120 else parts), "\n".join(shown)


@pytest.mark.parametrize(
    ("field", "old", "new"),
    [("name", "a", OBEYED), ("description", "a " * 50, OBEYED * 9), ("images", ["a"], [OBEYED])],
)
def test_nothing_that_a_seller_wrote_is_obeyed_by_the_terminal(field: str, old: Any, new: Any) -> None:
    shown = "\n".join(lines([FieldChange(ChangeType.PRODUCT_INFO, field, old, new)], 200, full=True))

    assert "\x1b" not in shown
    assert "red\ufffd[2J" in shown


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_description_that_is_another_one_fits_the_screen_unless_all_of_it_is_asked_for(columns: int) -> None:
    texts = [" ".join(f"{name}{n}" for n in range(3_000)) for name in ("old", "new")]
    pages = ["".join(f"<p>{name}{n} {n}{name}</p>" for n in range(200)) for name in ("old", "new")]
    for old, new in (texts, pages):
        change = FieldChange(ChangeType.DESCRIPTION, "description", old, new)

        short, full = lines([change], columns), lines([change], columns, full=True)

        assert len(short) < 40
        assert "⋯" in "".join(short)
        assert "⋯" not in "".join(full)
        assert len(" ".join(full).split()) > 400
