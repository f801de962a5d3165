"""Whole families of hostile answers: a typed refusal or true values, and never the loss of another item."""

import gzip
import json
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import to_builtins

from mustit_pipeline.catalog import canonical
from mustit_pipeline.domain.drift import Deviation
from mustit_pipeline.foundation.failures import MalformedBody, SessionRefused
from mustit_pipeline.marketplace.models import ListingPage, ProductDetail
from mustit_pipeline.marketplace.parsing import parse_detail, parse_listing, parse_options
from mustit_pipeline.marketplace.session import LONGEST_LIFETIME, read_session
from mustit_pipeline_tests.conftest import SAMPLES
from mustit_pipeline_tests.unit.marketplace.bodies import detail, info, listing, listing_item, option, shipping

NOW = datetime(2026, 11, 16, 3, 0, tzinfo=UTC)
Parse = Callable[..., Any]

# Lone surrogates and NUL included: the encoder writes them as escapes.
TEXT = st.text(max_size=12) | st.sampled_from(
    [
        "",
        " ",
        "\x00",
        "\ud800",
        "\udfff가",
        "😀",
        "-1",
        "-545,600",
        "101%",
        "1e400",
        "NaN",
        "9" * 400,
        # More digits than Python turns into a number.
        "9" * 5000,
        "1_000",
        "１２３",
        "0x10",
        "−5",
        "5\u200b",
        "\u202e",
        "a" * 9000,
    ]
)
NUMBER = st.integers(-(2**70), 2**70) | st.floats() | st.sampled_from([-1, 101, 2**63, -0.0, 1e308, 10**400])
# Numbers that no price, stock or rate can be: chance alone rarely puts one where it counts.
IMPOSSIBLE = st.sampled_from([-1, -5000, 101, 150, "-1", "-545,600", "-3%", "101%", -1.0])
LEAF = st.none() | st.booleans() | NUMBER | TEXT
VALUE = st.recursive(
    LEAF, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=6
)


def nested(depth: int) -> Any:
    value: Any = "x"
    for level in range(depth):
        value = [value] if level % 2 else {"type": value}
    return value


def changed(plain: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """An object some of whose fields hold anything, or are not there."""
    odd = IMPOSSIBLE | VALUE | st.integers(1, 90).map(nested)
    fields = st.dictionaries(st.sampled_from([*plain, "unknown"]), odd, max_size=4)
    return st.builds(
        lambda new, gone: {name: value for name, value in (plain | new).items() if name not in gone},
        fields,
        st.sets(st.sampled_from([*plain]), max_size=2),
    )


def written(body: Any) -> bytes:
    """JSON as a careless server writes it: NaN, numbers without end, and halves of characters."""
    return json.dumps(body).encode()


def mangled(body: bytes, how: str, at: int) -> bytes:
    at %= len(body) + 1
    ways = {
        "as it is": body,
        "cut off": body[:at],
        "with a BOM": b"\xef\xbb\xbf" + body,
        "UTF-16": body.decode().encode("utf-16"),
        "Latin-1": body[:at] + b"\xe9\xff" + body[at:],
        "with a raw surrogate": body[:at] + b"\xed\xa0\x80" + body[at:],
        "with a NUL": body[:at] + b"\x00" + body[at:],
        "twice": body + body,
        "in a page": b"<html><body>" + body + b"</body></html>",
        "with a key twice": body.replace(b"{", b'{"count": -1, "itemNo": null, ', 1),
        "with an escape cut off": body[:at] + b"\\ud8" + body[at:],
        "with a byte changed": body[:at] + bytes([at * 37 % 256]) + body[at + 1 :],
        "with a part twice": body[:at] + body[at // 2 :],
        "with a number without end": body.replace(b": ", b": 1" + b"0" * 5000 + b', "x": ', 1),
        "deep": b'{"items": ' + b"[" * 3000 + body + b"]" * 3000 + b"}",
        "still packed": gzip.compress(body),
    }
    return ways[how]


WAYS = st.sampled_from(
    [
        *["as it is"] * 8,
        "cut off",
        "with a BOM",
        "UTF-16",
        "Latin-1",
        "with a raw surrogate",
        "with a NUL",
        "twice",
        "in a page",
        "with a key twice",
        "with an escape cut off",
        "with a byte changed",
        "with a part twice",
        "with a number without end",
        "deep",
        "still packed",
    ]
)


def check_values(value: Any, name: str = "") -> None:
    """Whatever was read can be: numbers in their range, and texts that PostgreSQL can hold."""
    if isinstance(value, dict):
        for key, inner in value.items():
            check_values(inner, key)
    elif isinstance(value, list | tuple):
        for inner in value:
            check_values(inner, name)
    elif isinstance(value, str):
        assert "\x00" not in value
        value.encode()
    elif type(value) is int:
        assert -(2**63) <= value < 2**63
        if "rate" in name:
            assert 0 <= value <= 100
        elif name not in ("seller_no", "brand_code"):
            assert value >= 0


def read(parse: Parse, body: bytes) -> Any:
    """What a body says, or None where it is refused; either can be stored."""
    drift: list[Deviation] = []
    value, kept = None, None
    try:
        value = parse(body, drift=drift)
    except MalformedBody as refused:
        kept = refused.document
    assert kept is None or "\x00" not in kept.decode()
    check_values([to_builtins(one) for one in drift])
    if isinstance(value, ListingPage):
        check_values([to_builtins(entry) for entry in value.entries])
        for entry in value.entries:
            assert entry.name.strip()
            canonical.listing_json(entry)
    elif isinstance(value, ProductDetail):
        assert value.item_name.strip()
        check_values({name: one for name, one in to_builtins(value).items() if name != "modules"})
        canonical.content_of(value)
    elif value is not None:
        check_values([to_builtins(one) for one in value])
        canonical.content_of(value)
    return value


# More of them than each test run can wait for: MUSTIT_TEST_HOSTILE_EXAMPLES=5000.
EXAMPLES = int(os.environ.get("MUSTIT_TEST_HOSTILE_EXAMPLES", "450"))
HOSTILE = settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.large_base_example]
)


@given(odd=st.lists(changed(listing_item(itemNo=7)) | VALUE, min_size=1, max_size=3))
@HOSTILE
def test_hostile_items_of_a_page_cost_no_other_item(odd: list[Any]) -> None:
    def takes_a_good_number(item: Any) -> bool:
        return isinstance(item, dict) and str(item.get("itemNo")).strip().rstrip("%").split(".")[0] in ("1", "2")

    odd = [item for item in odd if not takes_a_good_number(item)]
    body = written(listing(listing_item(itemNo=1), *odd, listing_item(itemNo=2)))
    page = read(parse_listing, body)
    assert page is not None
    assert {1, 2} <= {entry.item_no for entry in page.entries}
    assert len(page.entries) + page.skipped <= len(odd) + 2


@given(body=changed(listing(listing_item())), how=WAYS, at=st.integers(0, 5000))
@HOSTILE
def test_a_hostile_page_is_refused_or_true(body: Any, how: str, at: int) -> None:
    read(parse_listing, mangled(written(body), how, at))


@given(
    module=changed(info()),
    shipment=changed(shipping()["items"][0]["data"]),
    body=changed(detail()),
    how=WAYS,
    at=st.integers(0, 5000),
)
@HOSTILE
def test_a_hostile_detail_is_refused_or_true(module: Any, shipment: Any, body: Any, how: str, at: int) -> None:
    whole = detail(ProductInfoModule=module, ShippingModule=shipping(**shipment))
    read(parse_detail, mangled(written(whole), how, at))
    read(parse_detail, mangled(written(body), how, at))


@given(body=st.lists(changed(option()) | VALUE, max_size=3), how=WAYS, at=st.integers(0, 5000))
@HOSTILE
def test_hostile_options_are_refused_or_true(body: Any, how: str, at: int) -> None:
    read(parse_options, mangled(written(body), how, at))


def page_with(**fields: Any) -> Any:
    return listing(listing_item(itemNo=1), listing_item(itemNo=2, **fields))


def info_with(**fields: Any) -> Any:
    return detail(ProductInfoModule=info(**fields))


def shipment_with(**fields: Any) -> Any:
    return detail(ShippingModule=shipping(**fields))


def options_with(**fields: Any) -> Any:
    return [option(optionNo=1), option(optionNo=2, **fields)]


# By the specification: no price, fee or stock is negative, and no rate is below 0 or above 100.
NEGATIVE = st.just(-1) | st.integers(-(2**63), -1)
NO_RATE = NEGATIVE | st.just(101) | st.integers(101, 2**63 - 1)
REFUSED = [
    (parse_detail, info_with, "normalPrice", NEGATIVE),
    (parse_detail, info_with, "sellingPrice", NEGATIVE),
    (parse_detail, info_with, "discountPrice", NEGATIVE),
    (parse_detail, info_with, "stock", NEGATIVE),
    (parse_detail, info_with, "discountRate", NO_RATE),
    (parse_detail, shipment_with, "shippingFee", NEGATIVE),
    (parse_options, options_with, "stock", NEGATIVE),
]
SKIPPED = [
    ("price", NEGATIVE),
    ("originalPrice", NEGATIVE),
    ("normalPrice", NEGATIVE),
    ("appPrice", NEGATIVE),
    ("discountRate", NO_RATE),
    ("appDiscountRate", NO_RATE),
]
WRITTEN_AS = st.sampled_from([int, float, str, "{:,}".format, "{}%".format, " {}.0 ".format])


@pytest.mark.parametrize(("parse", "body_with", "name", "impossible"), REFUSED)
@given(data=st.data(), form=WRITTEN_AS)
@settings(HOSTILE, max_examples=EXAMPLES // 9)
def test_an_impossible_number_costs_the_whole_detail_or_options_which_are_kept(
    parse: Parse,
    body_with: Callable[..., Any],
    name: str,
    impossible: st.SearchStrategy[int],
    data: st.DataObject,
    form: Callable[[int], Any],
) -> None:
    """A negative stock of an option was left to chance: the properties above met it in most runs, not in all."""
    body = written(body_with(**{name: form(data.draw(impossible))}))
    with pytest.raises(MalformedBody) as refused:
        parse(body)
    assert refused.value.document == body


@pytest.mark.parametrize(("name", "impossible"), SKIPPED)
@given(data=st.data(), form=WRITTEN_AS)
@settings(HOSTILE, max_examples=EXAMPLES // 9)
def test_an_impossible_number_in_a_listing_costs_its_own_item(
    name: str, impossible: st.SearchStrategy[int], data: st.DataObject, form: Callable[[int], Any]
) -> None:
    page = read(parse_listing, written(page_with(**{name: form(data.draw(impossible))})))
    assert ([entry.item_no for entry in page.entries], page.skipped) == ([1], 1)


def leaves(value: Any) -> list[tuple[Any, Any]]:
    """Where each value stands that is no object and no list: in what, and at which key."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, one in inner for place in leaves(one) or [(value, key)]]


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the recorded responses are not here")
@pytest.mark.parametrize(
    ("sample", "parse"), [("mini_shop", parse_listing), ("detail", parse_detail), ("option", parse_options)]
)
@given(changes=st.lists(st.tuples(st.integers(0, 9999), VALUE), max_size=3), how=WAYS, at=st.integers(0, 9999))
@settings(HOSTILE, max_examples=EXAMPLES // 3)
def test_a_recorded_body_with_hostile_values_is_refused_or_true(
    sample: str, parse: Parse, changes: list[tuple[int, Any]], how: str, at: int
) -> None:
    body = json.loads((SAMPLES / f"{sample}.json").read_bytes())
    if sample == "mini_shop":
        del body["items"][4:]
    for place, value in changes:
        found = leaves(body)
        inside, key = found[place % len(found)]
        inside[key] = value
    read(parse, mangled(written(body), how, at))


@pytest.mark.parametrize("parse", [parse_listing, parse_detail, parse_options])
@pytest.mark.parametrize("escapes", [rb"\ud800", rb"\\\ud800", rb"\\ud800"])
def test_a_large_body_of_surrogates_is_read_or_refused_in_one_pass(parse: Parse, escapes: bytes) -> None:
    read(parse, b'{"count": 1, "items": ["' + escapes * 100_000 + b'"]}')


COOKIE_PART = st.sampled_from(
    [
        *("token=", "token", "nid=", "mustit_uid=", "=", ";", " ", '"', "abc", "Max-Age=", "Expires=", "0", "-1"),
        *("9" * 400, "Thu, 01 Jan 1970 00:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 GMT", "\r\n", "\x00", "가", "\ud800"),
    ]
)


@given(cookies=st.lists(st.lists(COOKIE_PART | st.text(max_size=6), max_size=8).map("".join), max_size=4))
@HOSTILE
def test_hostile_cookies_are_refused_or_a_session_that_headers_can_carry(cookies: list[str]) -> None:
    try:
        session = read_session(cookies, NOW)
    except SessionRefused:
        return
    headers = session.headers("agent")
    assert all(value.isascii() and value.isprintable() for value in headers.values())
    assert timedelta(0) < session.lifetime <= LONGEST_LIFETIME
