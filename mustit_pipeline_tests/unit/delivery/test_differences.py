"""What a product server reports against what was sent to it."""

from typing import Any

import pytest

from mustit_pipeline.delivery.reconcile import differing_fields

OPTION = {"optionNo": 7, "color": "", "size": "US 4", "stock": 1, "sizeGuide": ""}
OURS: dict[str, Any] = {"itemNo": 1, "sellerId": "dmont", "name": "가방", "stock": 3, "options": [OPTION]}


@pytest.mark.parametrize(
    ("theirs", "fields"),
    [
        ({}, ()),
        ({"addedByTheServer": True}, ()),
        ({"stock": 2}, ("stock",)),
        ({"itemNo": 2, "sellerId": "other"}, ("itemNo", "sellerId")),
        ({"options": [OPTION | {"stock": 0}]}, ("options[7].stock",)),
    ],
)
def test_each_field_that_differs_is_named_and_what_the_server_adds_is_its_affair(
    theirs: dict[str, Any], fields: tuple[str, ...]
) -> None:
    assert differing_fields(OURS | theirs, OURS) == fields


@pytest.mark.parametrize("options", [None, "none", {"7": OPTION}, [OPTION, None], [{"optionNo": "7"}], [{}]])
def test_options_that_cannot_be_read_differ_as_a_whole_and_hide_nothing_else(options: object) -> None:
    assert differing_fields(OURS | {"options": options, "stock": 2}, OURS) == ("options", "stock")
