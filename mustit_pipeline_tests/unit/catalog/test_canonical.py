"""The same content is the same hash, however the marketplace writes it; other content is another."""

from collections.abc import Callable
from typing import Any
from unicodedata import normalize

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mustit_pipeline.catalog import canonical
from mustit_pipeline.catalog.product_data import Document
from mustit_pipeline.marketplace.parsing import parse_detail, parse_listing
from mustit_pipeline_tests.unit.catalog.reading import detail_of, hash_of, listing_of, options_of
from mustit_pipeline_tests.unit.marketplace import bodies

EMPTY = st.sampled_from(["missing", None, "", "  "])
NAMES = st.text(alphabet="가각뷁éüÅ한글 Ab1", min_size=1, max_size=12).filter(str.strip)


def shuffled(draw: Callable[[st.SearchStrategy[Any]], Any], data: dict[str, Any]) -> dict[str, Any]:
    return dict(draw(st.permutations(list(data.items()))))


def without(data: dict[str, Any], name: str, how: object) -> dict[str, Any]:
    """The data with a field left out in one of the ways in which nothing is said."""
    kept = {key: value for key, value in data.items() if key != name}
    return kept if how == "missing" else {**kept, name: how}


def listed(item: dict[str, Any]) -> Document:
    (entry,) = parse_listing(bodies.encoded(bodies.listing(item))).entries
    return orjson.loads(canonical.listing_json(entry))


def detailed(body: dict[str, Any]) -> Document:
    detail = parse_detail(bodies.encoded(body), item_no=bodies.ITEM_NO)
    return orjson.loads(canonical.detail_json(detail, None))


@st.composite
def written(draw: st.DrawFn, value: int) -> object:
    """A number in one of the ways in which the marketplace writes numbers."""
    return draw(st.sampled_from([value, str(value), f"{value:,}", f"{value}%", f" {value:,}", f"{value}.0"]))


@st.composite
def listing_noise(draw: st.DrawFn) -> dict[str, Any]:
    volatile = {
        "likeStatus": draw(st.booleans()),
        "likeImageUrl": draw(st.text(max_size=5)),
        "webSpacingInfo": draw(st.none() | st.integers(0, 99)),
        "neverSeenBefore": draw(st.text(max_size=5)),
    }
    numbers = {"price": 545600, "originalPrice": 1075000, "normalPrice": 1075000, "discountRate": 49}
    tags = [{"title": title, "textColor": draw(st.text(max_size=3))} for title in ("무료배송", "당일발송", "단독")]
    changes = {name: draw(written(value)) for name, value in numbers.items()}
    changes |= volatile | {"tagList": draw(st.permutations(tags))}
    return shuffled(draw, bodies.listing_item(**changes))


@settings(deadline=None)
@given(listing_noise(), listing_noise())
def test_order_number_formats_tag_order_and_volatile_fields_of_a_listing_are_no_change(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    assert hash_of(listed(one)) == hash_of(listed(other))


@settings(deadline=None)
@given(st.data())
def test_order_number_formats_unknown_modules_and_fields_of_a_detail_are_no_change(data: st.DataObject) -> None:
    numbers = {"normalPrice": 1083000, "sellingPrice": 621000, "discountPrice": 565100, "stock": 3, "discountRate": 48}
    info = bodies.info(**{name: data.draw(written(value)) for name, value in numbers.items()}, viewers=7)
    body = bodies.detail(ProductInfoModule=info, RecommendModule={"seen": data.draw(st.integers(0, 99))})
    modules = [
        {"type": module["type"], "data": shuffled(data.draw, module["data"])}
        for module in body["moduleList"]
        if isinstance(module["data"], dict)
    ]
    body["moduleList"] = data.draw(st.permutations([*modules, {"type": "TabListModule", "data": []}]))

    assert hash_of(detailed(body)) == hash_of(detail_of())


@settings(deadline=None)
@given(st.permutations([1, 2, 3, 4]), st.data())
def test_the_order_of_options_and_of_their_fields_is_no_change(order: list[int], data: st.DataObject) -> None:
    options = [bodies.option(optionNo=number, size=f"EU {number}") for number in (1, 2, 3, 4)]
    fields = data.draw(st.permutations(list(bodies.option())))
    mixed = [{field: options[number - 1][field] for field in fields} for number in order]

    assert hash_of(options_of(*mixed)) == hash_of(options_of(*options))


@settings(deadline=None)
@given(NAMES)
def test_composed_and_decomposed_text_is_the_same_content(name: str) -> None:
    composed, decomposed = normalize("NFC", name), normalize("NFD", name)

    assert hash_of(listing_of(name=composed)) == hash_of(listing_of(name=decomposed))
    one, other = (detail_of(ProductInfoModule=bodies.info(itemName=text)) for text in (composed, decomposed))
    assert hash_of(one) == hash_of(other)
    assert hash_of(options_of(bodies.option(size=composed))) == hash_of(options_of(bodies.option(size=decomposed)))


@settings(deadline=None)
@given(st.sampled_from(["brandName", "price", "originalPrice", "discountRate", "appPrice", "landingUrl"]), EMPTY, EMPTY)
def test_null_missing_and_empty_are_the_same_in_a_listing(field: str, one: object, other: object) -> None:
    if field in ("brandName", "landingUrl"):
        one, other = ("" if how == "  " else how for how in (one, other))
    hashes = [hash_of(listed(without(bodies.listing_item(), field, how))) for how in (one, other)]
    assert hashes[0] == hashes[1]
    assert hashes[0] != hash_of(listing_of())


# Of the modules that are there: a module that is missing is another matter.
SAYINGS: dict[str, Callable[..., Document]] = {
    "detail": lambda data: detail_of(ProductInfoModule=data),
    "banners": lambda data: detail_of(ProductBannersModule=data),
    "shipping": lambda data: detail_of(ShippingModule={"items": [{"type": "SHIPPING", "data": data}]}),
    "detail info": lambda data: detail_of(ProductDetailInfoModule=data),
    "option": options_of,
    "listing": listed,
}
FILLED: dict[str, dict[str, Any]] = {
    "detail": bodies.info(smallCategoryCode="16r05r1", smallCategory="소형"),
    "banners": {"images": ["https://image.example/b1.jpeg"]},
    "shipping": bodies.shipping()["items"][0]["data"],
    "detail info": bodies.detail_info(),
    "option": bodies.option(),
    "listing": bodies.listing_item(),
}
# Without these there is no body, or one of no product; what is not read is no content either.
NEEDED = {
    "detail": {"itemNo", "itemName", "sellerId"},
    "option": {"optionNo", "itemNo"},
    "listing": {"itemNo", "name", "likeStatus"},
}
NOTHING: dict[type, list[object]] = {list: [[]], dict: [{}, {"text": None}, {"text": ""}]}
FIELDS = [(source, name) for source, data in FILLED.items() for name in data if name not in NEEDED.get(source, ())]


@pytest.mark.parametrize(("source", "field"), FIELDS, ids=lambda value: value)
def test_null_missing_and_empty_are_the_same_in_every_field(source: str, field: str) -> None:
    said, data = SAYINGS[source], FILLED[source]
    hashes = {
        hash_of(said(without(data, field, how))) for how in ("missing", None, *NOTHING.get(type(data[field]), [""]))
    }

    assert len(hashes) == 1
    assert hashes != {hash_of(said(data))}


@pytest.mark.parametrize("stock", [None, 0])
def test_nothing_said_and_zero_are_different_statements(stock: int | None) -> None:
    other = 0 if stock is None else None
    assert hash_of(options_of(bodies.option(stock=stock))) != hash_of(options_of(bodies.option(stock=other)))


def test_no_options_is_a_statement_of_its_own() -> None:
    assert options_of() == {"options": []}
    assert hash_of(options_of()) != hash_of(options_of(bodies.option()))


def test_the_order_of_images_is_content() -> None:
    there, back = ["https://a/1", "https://a/2"], ["https://a/2", "https://a/1"]
    assert hash_of(listing_of(imageUrlList=there)) != hash_of(listing_of(imageUrlList=back))


def test_a_page_carries_the_content_of_its_entries_so_that_it_is_parsed_once() -> None:
    """Names with line breaks and other separators of text included."""
    items = [bodies.listing_item(itemNo=number, name=f"가방\n\r\u2028\x85{number}") for number in (1, 2, 3)]
    page = parse_listing(bodies.encoded(bodies.listing(*items)))
    content = canonical.listing_content(page.entries)
    assert content is not None
    assert list(canonical.listing_lines(content)) == [
        (entry.item_no, canonical.listing_json(entry)) for entry in page.entries
    ]
    assert canonical.listing_content([]) == ""
    assert list(canonical.listing_lines("")) == []


def test_a_page_with_an_entry_that_lacks_a_price_is_read_again() -> None:
    """What that entry says depends on what was known before."""
    items = [bodies.listing_item(itemNo=1), bodies.listing_item(itemNo=2, price=None)]
    assert canonical.listing_content(parse_listing(bodies.encoded(bodies.listing(*items))).entries) is None


def test_another_canonical_form_of_the_same_body_is_another_reading() -> None:
    """Where these hashes change, raise `canonical.READING`: else the recrawl policy takes a release for changes."""
    documents = listed(bodies.listing_item()), detailed(bodies.detail()), options_of(bodies.option())
    assert canonical.READING == 1
    assert [hash_of(document) for document in documents] == [
        "530dfd73b75f44e92dce13cbea7327fe",
        "7a18250b64ecfe2a46b467c7ad4c7403",
        "7609f02854e3f840b1709c4f1def3465",
    ]
