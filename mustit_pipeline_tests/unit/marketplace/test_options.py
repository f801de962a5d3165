"""Option bodies."""

from typing import Any

import pytest

from mustit_pipeline.foundation.failures import MalformedBody
from mustit_pipeline.marketplace.models import ProductOption
from mustit_pipeline.marketplace.parsing import parse_options
from mustit_pipeline_tests.unit.marketplace.bodies import ITEM_NO, encoded, option


def test_every_field_of_an_option_is_read() -> None:
    assert parse_options(encoded([option()]), item_no=ITEM_NO) == (
        ProductOption(4134224619, ITEM_NO, "블랙", "US 4", 1, "정사이즈", "NONE"),
    )


def test_no_options_is_a_valid_answer() -> None:
    assert parse_options(b"[]", item_no=ITEM_NO) == ()


def test_absent_fields_are_empty_text_and_no_number() -> None:
    assert parse_options(encoded([{"optionNo": 1, "itemNo": 2}])) == (ProductOption(1, 2, "", "", None, "", ""),)


def test_of_two_options_with_one_number_the_last_wins() -> None:
    options = parse_options(encoded([option(stock=1), option(optionNo=9), option(stock=5)]))
    assert [(one.option_no, one.stock) for one in options] == [(4134224619, 5), (9, 1)]


@pytest.mark.parametrize(
    "body",
    [
        [option(itemNo=1)],
        [option(), option(optionNo=2, itemNo=1)],
        [option(itemNo=None)],
        [option(optionNo=None)],
        [option(optionNo=0)],
        [option(optionNo=False)],
        [option(stock="많음")],
        [option(stock=True)],
        [option(), option(optionNo=9, stock=-1)],
        [option(size=95)],
        [option(), None],
        [[]],
        {},
        {"options": []},
        None,
        "[]",
        0,
    ],
)
def test_options_that_cannot_be_trusted_are_a_failure(body: Any) -> None:
    with pytest.raises(MalformedBody) as caught:
        parse_options(encoded(body), item_no=ITEM_NO)
    assert caught.value.source == "options"


def test_options_of_two_products_are_a_failure_even_when_none_was_asked_for() -> None:
    with pytest.raises(MalformedBody, match="is of item 1"):
        parse_options(encoded([option(), option(optionNo=2, itemNo=1)]))
