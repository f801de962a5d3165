"""Texts that are cut in the middle of a character: a lone surrogate costs no more than itself."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mustit_pipeline.domain.drift import Deviation, DriftKind
from mustit_pipeline.foundation.failures import MalformedBody
from mustit_pipeline.marketplace.parsing import parse_detail, parse_listing, parse_options
from mustit_pipeline_tests.unit.marketplace.bodies import (
    detail,
    detail_info,
    encoded,
    info,
    listing,
    listing_item,
    option,
    shipping,
)

LONE = "text with a lone surrogate"
Said = Callable[[Any], Any]

# Each with its mark, which a test replaces by an escape.
MARK = "@@"
BODIES: list[tuple[Callable[..., Any], Any, Said, str]] = [
    (
        parse_listing,
        listing(listing_item(itemNo=1), listing_item(itemNo=2, name=f"백{MARK}팩"), listing_item(itemNo=3)),
        lambda page: page.entries[1].name,
        "listing.items.name",
    ),
    (
        parse_listing,
        listing(listing_item(imageUrlList=["/1.jpg", f"백{MARK}팩"])),
        lambda page: page.entries[0].image_urls[1],
        "listing.items.imageUrlList",
    ),
    (
        parse_listing,
        listing(listing_item(tagList=[{"title": f"백{MARK}팩"}])),
        lambda page: page.entries[0].tags[0],
        "listing.items.tagList.title",
    ),
    (
        parse_detail,
        detail(ProductInfoModule=info(itemName=f"백{MARK}팩")),
        lambda seen: seen.item_name,
        "detail.ProductInfoModule.itemName",
    ),
    (
        parse_detail,
        detail(ShippingModule=shipping(shippingFeeType=f"백{MARK}팩")),
        lambda seen: seen.shipping.fee_type,
        "detail.ShippingModule.items.data.shippingFeeType",
    ),
    (
        parse_detail,
        detail(ProductDetailInfoModule=detail_info(descriptionMarkUp=f"백{MARK}팩")),
        lambda seen: seen.description_markup,
        "detail.ProductDetailInfoModule.descriptionMarkUp",
    ),
    (parse_options, [option(), option(optionNo=2, color=f"백{MARK}팩")], lambda seen: seen[1].color, "options.color"),
]
EACH_BODY = pytest.mark.parametrize(("parse", "body", "said", "path"), BODIES, ids=[path for *_, path in BODIES])


def marked(body: Any, escape: str) -> bytes:
    return encoded(body).replace(MARK.encode(), escape.encode())


@EACH_BODY
@pytest.mark.parametrize("escape", [r"\ud83d", r"\uDE00", r"\\\ud83d", r"\ud83d\n", r"\ud83d\ud83d", r"\uDE00\uD83D"])
def test_a_lone_surrogate_becomes_a_replacement_character_and_is_drift(
    parse: Callable[..., Any], body: Any, said: Said, path: str, escape: str
) -> None:
    drift: list[Deviation] = []

    seen = said(parse(marked(body, escape), drift=drift))

    rest = escape.replace(r"\ud83d", "\ufffd").replace(r"\uDE00", "\ufffd").replace(r"\uD83D", "\ufffd")
    assert seen == "백" + rest.replace(r"\n", "\n").replace(r"\\", "\\") + "팩"
    assert [(one.path, one.kind, one.observed) for one in drift] == [(path, DriftKind.RETYPED, LONE)]


@EACH_BODY
@pytest.mark.parametrize(
    ("escape", "text"), [(r"\ud83d\ude00", "😀"), (r"\\ud83d", r"\ud83d"), ("\ufffd", "\ufffd"), (r"\ufffd", "\ufffd")]
)
def test_a_pair_and_what_only_looks_like_a_surrogate_are_read_as_they_are(
    parse: Callable[..., Any], body: Any, said: Said, path: str, escape: str, text: str
) -> None:
    drift: list[Deviation] = []
    assert said(parse(marked(body, escape), drift=drift)) == f"백{text}팩"
    assert drift == []


def test_a_pair_beside_a_lone_surrogate_stays_a_pair() -> None:
    body = listing(listing_item(itemNo=1, name=r"a@1b"), listing_item(itemNo=2, name="c@2d"))
    given = encoded(body).replace(b"@1", rb"\ud83d\ude00").replace(b"@2", rb"\ud83d")
    assert [entry.name for entry in parse_listing(given).entries] == ["a😀b", "c\ufffdd"]


def test_a_lone_surrogate_outside_of_every_known_field_is_drift_of_the_body() -> None:
    drift: list[Deviation] = []
    parse_detail(marked(detail(TabListModule=[{"title": MARK}]), r"\ud800"), drift=drift)
    assert [(one.path, one.observed) for one in drift] == [("detail", LONE)]


def test_no_other_item_of_a_page_is_lost_and_none_is_skipped() -> None:
    items = [listing_item(itemNo=number, name=f"이름 {MARK if number == 250 else number}") for number in range(1, 501)]
    page = parse_listing(marked(listing(*items), r"\udfff"))
    assert (len(page.entries), page.skipped) == (500, 0)
    assert page.entries[249].name == "이름 \ufffd"


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (b"\xed\xa0\xbd", "\ufffd"),
        (b"\xed\xb8\x80", "\ufffd"),
        (b"\xed\xa0\xbd\xed\xb8\x80", "😀"),
        (b"\xed\xb8\x80\xed\xa0\xbd", "\ufffd\ufffd"),
    ],
)
def test_halves_of_a_character_that_are_encoded_apart_cost_no_other_item(given: bytes, name: str) -> None:
    drift: list[Deviation] = []
    body = encoded(listing(listing_item(itemNo=1, name=MARK), listing_item(itemNo=2)))
    page = parse_listing(body.replace(MARK.encode(), given), drift)
    assert ([entry.item_no for entry in page.entries], page.skipped, page.entries[0].name) == ([1, 2], 0, name)
    assert [one.observed for one in drift] == [LONE]


@pytest.mark.parametrize("given", [b"\xe9\xff", b"\xc7\xd1\xb1\xdb", b"\xea\xb0"], ids=["Latin-1", "EUC-KR", "cut off"])
def test_a_body_in_another_encoding_is_refused_as_a_whole(given: bytes) -> None:
    body = encoded(listing(listing_item(itemNo=1, name=MARK), listing_item(itemNo=2)))
    with pytest.raises(MalformedBody, match="not JSON"):
        parse_listing(body.replace(MARK.encode(), given))


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity", b"1e400", b"9" * 400])
@pytest.mark.parametrize(("field", "entries"), [("price", [2]), ("likeStatus", [1, 2])])
def test_a_number_that_is_none_costs_its_own_item_and_none_in_a_field_that_is_not_read(
    number: bytes, field: str, entries: list[int]
) -> None:
    body = encoded(listing(listing_item(itemNo=1, **{field: MARK}), listing_item(itemNo=2)))
    page = parse_listing(body.replace(f'"{MARK}"'.encode(), number))
    assert [entry.item_no for entry in page.entries] == entries


@pytest.mark.parametrize("escape", [r"\ud8", r"\ud83", r"\ud83g", r"\u", "\\"])
def test_an_escape_that_is_cut_off_is_not_json(escape: str) -> None:
    with pytest.raises(MalformedBody, match="not JSON"):
        parse_listing(marked(listing(listing_item(name=MARK)), escape))


@given(
    parts=st.lists(
        st.sampled_from([r"\ud83d", r"\uDE00", r"\\", r"\"", r"\n", r"\uac00", "u", "d83d", "가", "n"]), max_size=12
    )
)
@settings(max_examples=300, deadline=None)
def test_every_mixture_of_escapes_is_read_as_text_that_can_be_stored(parts: list[str]) -> None:
    page = parse_listing(marked(listing(listing_item(itemNo=1), listing_item(itemNo=2, name="x@@")), "".join(parts)))
    assert [entry.item_no for entry in page.entries] == [1, 2]
    assert page.entries[1].name.encode().decode() == page.entries[1].name
