"""The short way through a body says just what the long way says, or leaves the body to it."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mustit_pipeline.domain.drift import Deviation
from mustit_pipeline.foundation.failures import MalformedBody
from mustit_pipeline.marketplace import parsing
from mustit_pipeline.marketplace.usual import usual
from mustit_pipeline_tests.unit.marketplace.bodies import detail, encoded, listing, listing_item, option

Parse = Callable[[bytes, list[Deviation]], object]
ANYTHING = st.sampled_from(
    [
        None,
        "",
        " ",
        "x",
        "1,000",
        "49%",
        "-1",
        0,
        1,
        -5,
        101,
        2**63,
        1.0,
        1.5,
        1e300,
        True,
        [],
        {},
        ["a"],
        [1],
        {"a": 1},
    ]
)
NAME = st.sampled_from(["type", "data", "stock", "itemNo", "surprise"])


def outcome(parse: Parse, body: bytes) -> Any:
    drift: list[Deviation] = []
    try:
        return parse(body, drift), drift
    except MalformedBody as error:
        return str(error), error.document, drift


def long_way(parse: Parse, body: bytes) -> Any:
    """What comes of a body that no decoder of usual shapes has seen."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(parsing, "usual", lambda *_: None)
        return outcome(parse, body)


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container of a document with each of its keys."""
    if isinstance(value, dict | list):
        keys: list[Any] = list(value) if isinstance(value, dict) else list(range(len(value)))  # pyright: ignore
        for key in keys:
            yield value, key
            yield from places(value[key])


@st.composite
def changed(draw: st.DrawFn, document: Any) -> bytes:
    """A body with up to three values replaced, removed or added, wherever they are."""
    copy = deepcopy(document)
    for _ in range(draw(st.integers(0, 3))):
        container, key = draw(st.sampled_from(list(places(copy)) or [(copy, None)]))
        how = draw(st.sampled_from(["replace", "remove", "add"]))
        if how == "replace" and key is not None:
            container[key] = deepcopy(draw(ANYTHING))
        elif how == "remove" and key is not None:
            del container[key]
        elif isinstance(container, dict):
            container[draw(NAME)] = deepcopy(draw(ANYTHING))
    body = encoded(copy)
    return draw(
        st.sampled_from([body, body, body, body[:-1], body + b" ", b"\xef\xbb\xbf" + body, body[:40] + b"\xff"])
    )


@given(body=changed(detail()))
@settings(max_examples=1500, deadline=None)
def test_a_detail_is_read_alike_both_ways(body: bytes) -> None:
    assert outcome(parsing.parse_detail, body) == long_way(parsing.parse_detail, body)


@given(body=changed([option(), option(optionNo=2)]))
@settings(max_examples=700, deadline=None)
def test_options_are_read_alike_both_ways(body: bytes) -> None:
    assert outcome(parsing.parse_options, body) == long_way(parsing.parse_options, body)


@given(body=changed(listing(listing_item(), listing_item(itemNo=2))))
@settings(max_examples=1000, deadline=None)
def test_a_listing_is_read_alike_both_ways(body: bytes) -> None:
    def parse(body: bytes, drift: list[Deviation]) -> object:
        return parsing.parse_listing(body, drift, most=10_000)

    assert outcome(parse, body) == long_way(parse, body)


def test_usual_bodies_take_the_short_way_and_others_do_not() -> None:
    assert usual("detail", encoded(detail())) is not None
    assert usual("options", encoded([option()])) is not None
    assert usual("options", b"[]") == []
    assert usual("listing", encoded(listing(listing_item()))) is not None
    assert usual("listing", encoded(listing(listing_item(surprise=1)))) is None
    surprising = detail()
    surprising["surprise"] = 1
    assert usual("detail", encoded(surprising)) is None
    assert usual("options", encoded([option(surprise=1)])) is None
    assert usual("detail", rb'{"moduleList": [], "nextApiUrl": "\ud800"}') is None
