"""Fields by their paths."""

import re

import pytest

from mustit_pipeline.domain.field_paths import FieldPaths


@pytest.mark.parametrize(
    ("written", "path", "included"),
    [
        ("", "detail.ProductInfoModule.stock", False),
        ("detail.ProductInfoModule.stock", "detail.ProductInfoModule.stock", True),
        ("detail.ProductInfoModule", "detail.ProductInfoModule.stock", True),
        ("detail.ProductInfoModule.sto", "detail.ProductInfoModule.stock", False),
        ("detail.*.stock", "detail.ProductInfoModule.stock", True),
        ("*.price", "listing.items.price", True),
        ("*Price", "listing.items.normalPrice", True),
        ("*", "options", True),
        ("listing, options.stock ,", "options.stock", True),
        ("listing, options.stock ,", "options.size", False),
    ],
)
def test_a_path_stands_for_the_field_and_everything_below_it(written: str, path: str, included: bool) -> None:
    assert FieldPaths(written).include(path) is included


@pytest.mark.parametrize(
    "written", ["stock", "detail..stock", "detail.", "Listing.items", "detail stock", "detail.(a|b)"]
)
def test_what_is_no_path_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"{written!r} is none")):
        FieldPaths(f"listing.items,{written}")
