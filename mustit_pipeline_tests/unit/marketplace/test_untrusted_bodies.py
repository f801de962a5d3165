"""Bodies outside the contract: random, broken, hostile, reordered."""

import json
import string
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mustit_pipeline.foundation.failures import MalformedBody
from mustit_pipeline.marketplace.excerpt import safe_excerpt
from mustit_pipeline.marketplace.parsing import parse_count, parse_detail, parse_listing, parse_options
from mustit_pipeline_tests.unit.marketplace.bodies import detail, encoded, info, listing, listing_item, option

Parse = Callable[[bytes], Any]
PARSERS: list[Parse] = [parse_listing, parse_detail, parse_options, parse_count]
EACH_PARSER = pytest.mark.parametrize("parse", PARSERS, ids=["listing", "detail", "options", "count"])

KEYS = st.sampled_from([*listing_item(), *info(), *option(), "count", "items", "moduleList", "type", "data", "images"])
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.sampled_from(["1,083,000", "49%", "", "ProductInfoModule", "ShippingModule", "<img src=x>"]),
)
JSON = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=6))


def outcome(parse: Parse, body: bytes) -> Any:
    """What parsing gives, or None for the one failure it may raise."""
    try:
        return parse(body)
    except MalformedBody as malformed:
        failure = malformed
    assert len(failure.excerpt) <= 200
    assert failure.transient
    if failure.document is not None:
        assert "\x00" not in failure.document.decode()
        json.loads(failure.document)
    return None


@pytest.mark.parametrize("parse", PARSERS, ids=["listing", "detail", "options", "count"])
@pytest.mark.parametrize(
    ("body", "kept"),
    [
        (b"null", True),
        (b'{"name": "\\u0000"}', True),
        (b'{"name": "\x00"}', False),
        (b"{}\x00", False),
        (b'{"name": "\xb0\xa1"}', False),
        (b'{"name": "\\ud800"}', True),
        (b'{"name": "\\ud8"}', False),
        (b'{"name": "\xed\xa0\x80"}', True),
        ("<html>점검 중</html>".encode(), False),
        (b'{"moduleList": [', False),
        (b"", False),
    ],
)
def test_a_refused_body_is_kept_where_it_is_json_and_can_be_stored(parse: Parse, body: bytes, kept: bool) -> None:
    with pytest.raises(MalformedBody) as refused:
        parse(body)
    # A half of a character that was encoded alone is kept as U+FFFD: PostgreSQL cannot hold it.
    storable = body.replace(b"\xed\xa0\x80", "\ufffd".encode())
    assert (refused.value.document == storable) is kept
    assert kept or refused.value.document is None


@EACH_PARSER
@given(body=st.binary(max_size=200))
@settings(max_examples=100, deadline=None)
def test_random_bytes_are_never_more_than_a_malformed_body(parse: Parse, body: bytes) -> None:
    outcome(parse, body)


@EACH_PARSER
@given(body=JSON)
@settings(max_examples=100, deadline=None)
def test_random_json_is_never_more_than_a_malformed_body(parse: Parse, body: Any) -> None:
    outcome(parse, encoded(body))


@given(field=st.sampled_from([*info()]), value=JSON)
@settings(max_examples=100, deadline=None)
def test_one_field_of_any_other_value_is_read_or_refused(field: str, value: Any) -> None:
    outcome(parse_detail, encoded(detail(ProductInfoModule=info(**{field: value}))))


@given(field=st.sampled_from([*listing_item()]), value=JSON)
@settings(max_examples=100, deadline=None)
def test_one_odd_field_never_loses_the_rest_of_a_page(field: str, value: Any) -> None:
    page = parse_listing(encoded(listing(listing_item(itemNo=1), listing_item(**{"itemNo": 2, field: value}))))
    assert page.entries[0].item_no == 1
    assert 1 <= len(page.entries) + page.skipped <= 2


WHOLE = [(parse_listing, listing(listing_item())), (parse_detail, detail()), (parse_options, [option()])]


@pytest.mark.parametrize(("parse", "body"), WHOLE, ids=["listing", "detail", "options"])
def test_a_body_cut_off_anywhere_is_a_malformed_body(parse: Parse, body: Any) -> None:
    whole = encoded(body)
    for end in range(len(whole)):
        with pytest.raises(MalformedBody):
            parse(whole[:end])


def shaken(value: Any, draw: Callable[[Any], Any]) -> Any:
    """The same content with keys in another order and unknown ones added."""
    if isinstance(value, list):
        return [shaken(one, draw) for one in value]
    if not isinstance(value, dict):
        return value
    noise = draw(st.dictionaries(st.text(string.ascii_lowercase).map("zz_{}".format), LEAVES, max_size=2))
    pairs = [(key, shaken(one, draw)) for key, one in value.items()] + list(noise.items())
    return dict(draw(st.permutations(pairs)))


@pytest.mark.parametrize(("parse", "body"), WHOLE, ids=["listing", "detail", "options"])
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_order_and_unknown_fields_make_no_difference(parse: Parse, body: Any, data: st.DataObject) -> None:
    assert parse(encoded(shaken(body, data.draw))) == parse(encoded(body))


@EACH_PARSER
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"  \n",
        b"null",
        b"true",
        b"0",
        b'"text"',
        b"NaN",
        b'{"count": NaN, "items": []}',
        b'{"count": 1e999, "items": []}',
        b"<!DOCTYPE html><html><body>Login</body></html>",
        b'{"code": 500, "message": "error"}',
        b"\xff\xfe{}",
        b'["\\ud800"]',
        b'{"a": "\xed\xa0\x80"}',
        b"[" * 100_000,
        b'{"moduleList":' * 50_000,
        b"9" * 100_000,
    ],
)
def test_what_is_no_such_body_at_all_is_a_malformed_body(parse: Parse, body: bytes) -> None:
    with pytest.raises(MalformedBody) as caught:
        parse(body)
    assert caught.value.code == "EXTERNAL_MALFORMED_BODY"
    assert caught.value.reason in caught.value.english
    assert caught.value.reason in caught.value.korean


@given(value=st.integers(0, 10**12))
@settings(max_examples=100, deadline=None)
def test_a_number_is_the_same_in_every_way_of_writing_it(value: int) -> None:
    forms = [value, str(value), f"{value:,}", f" {value} ", f"{value}%", f"{value:,} %", f"{value}.0", float(value)]
    for form in forms:
        entry = parse_listing(orjson.dumps(listing(listing_item(price=form)))).entries[0]
        assert entry.price == value


@pytest.mark.parametrize(
    "number", ["1,0", ",100", "1,0000", "--1", "1e5", "0x10", "١٢٣", "１２", "1.5", "%", "1%%", "∞"]
)
def test_what_only_looks_like_a_number_is_refused(number: str) -> None:
    with pytest.raises(MalformedBody, match="stock"):
        parse_detail(encoded(detail(ProductInfoModule=info(stock=number))))


def test_an_excerpt_is_one_short_printable_line() -> None:
    excerpt = safe_excerpt("<html>\r\n\x1b[31m\x00\u202e로그인".encode() + b"\xff" + b"a b " * 500)
    assert excerpt.startswith("<html> [31m 로그인")
    assert len(excerpt) == 200
    assert excerpt.isprintable()


@pytest.mark.parametrize(
    "body",
    [
        b'{"error": "bad token", "token": "s3cret"}',
        b'{"headers": {"Authorization": "Bearer s3cret"}}',
        b"Cookie: nid=s3cret; mustit_uid=s3cret",
        b"<p>Authorization: Bearer s3cret</p>",
        b'{"ua": "Mozilla/5.0 (iPhone; s3cret like Mac OS X)"}',
        b"unknown session eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIs3cretIn0.c2lnbmF0dXJl",
    ],
)
def test_an_excerpt_shows_nothing_that_looks_like_a_secret(body: bytes) -> None:
    assert "s3cret" not in safe_excerpt(body)
