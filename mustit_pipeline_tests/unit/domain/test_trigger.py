"""Messages from outside, read as what they are: untrusted."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustit_pipeline.domain.trigger import LARGEST_BODY_BYTES, ParkReason, asked_seller
from mustit_pipeline.domain.values import SellerId

LONG = {"sellerId": "dmont", "padding": "가" * LARGEST_BODY_BYTES}


@pytest.mark.parametrize(
    ("body", "seller"),
    [
        ('{"sellerId": "dmont"}', "dmont"),
        ('{"sellerId": "한글 & a/b 50%"}', "한글 & a/b 50%"),
        (json.dumps({"version": "0", "detail-type": "Scheduled Event", "detail": {}, "sellerId": "dmont"}), "dmont"),
        ('{"sellerId": "x", "sellerId": "dmont"}', "dmont"),
    ],
)
def test_a_message_asks_for_its_seller_whatever_else_it_says(body: str, seller: str) -> None:
    assert asked_seller(body) == SellerId(seller)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (json.dumps(LONG), ParkReason.TOO_LARGE),
        (json.dumps(LONG, ensure_ascii=False)[: LARGEST_BODY_BYTES // 2], ParkReason.TOO_LARGE),
        ("", ParkReason.NOT_JSON),
        ("dmont", ParkReason.NOT_JSON),
        ('{"sellerId": "dmont"', ParkReason.NOT_JSON),
        ("[" * 30_000, ParkReason.NOT_JSON),
        ("9" * 5_000, ParkReason.NOT_JSON),
        ('["dmont"]', ParkReason.NO_SELLER_ID),
        ("null", ParkReason.NO_SELLER_ID),
        ('"sellerId"', ParkReason.NO_SELLER_ID),
        ("{}", ParkReason.NO_SELLER_ID),
        ('{"sellerId": 7}', ParkReason.NO_SELLER_ID),
        ('{"sellerId": null}', ParkReason.NO_SELLER_ID),
        ('{"sellerId": ["dmont"]}', ParkReason.NO_SELLER_ID),
        ('{"sellerid": "dmont"}', ParkReason.NO_SELLER_ID),
        ('{"sellerId": "  "}', ParkReason.BAD_SELLER_ID),
        ('{"sellerId": "a\\u0000b"}', ParkReason.BAD_SELLER_ID),
        ('{"sellerId": "\\ud800"}', ParkReason.BAD_SELLER_ID),
        (json.dumps({"sellerId": "x" * 201}), ParkReason.BAD_SELLER_ID),
    ],
)
def test_what_cannot_be_followed_says_why(body: str, reason: ParkReason) -> None:
    assert asked_seller(body) is reason


@given(st.text() | st.recursive(st.none() | st.text(), lambda inner: st.dictionaries(st.text(), inner)).map(json.dumps))
def test_no_message_can_make_the_reader_fail(body: str) -> None:
    assert isinstance(asked_seller(body), SellerId | ParkReason)
