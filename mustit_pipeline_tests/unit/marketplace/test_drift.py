"""Bodies that are not what they were: every new, missing and retyped field is named, and nothing else is."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mustit_pipeline.domain.drift import Deviation, DriftKind
from mustit_pipeline.foundation.failures import MalformedBody
from mustit_pipeline.marketplace import shape
from mustit_pipeline.marketplace.expected import examine
from mustit_pipeline.marketplace.parsing import parse_detail, parse_listing, parse_options
from mustit_pipeline.marketplace.shape import Field, Shape
from mustit_pipeline.simulator.detail_body import detail_body
from mustit_pipeline.simulator.generation import generate
from mustit_pipeline.simulator.listing_body import listing_body
from mustit_pipeline.simulator.noise import Noise
from mustit_pipeline.simulator.options_body import options_body
from mustit_pipeline_tests.conftest import SAMPLES
from mustit_pipeline_tests.unit.marketplace.bodies import (
    detail,
    encoded,
    info,
    listing,
    listing_item,
    option,
    shipping,
)

NEW, MISSING, RETYPED = DriftKind.NEW, DriftKind.MISSING, DriftKind.RETYPED
PARSERS: dict[str, Callable[..., object]] = {
    "listing": parse_listing,
    "detail": parse_detail,
    "options": parse_options,
}


def drift_of(source: str, body: Any) -> list[Deviation]:
    """What is noted when a body is read, whether or not it can be."""
    seen: list[Deviation] = []
    with suppress(MalformedBody):
        PARSERS[source](encoded(body), drift=seen)
    return seen


def without(data: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name not in names}


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the recorded responses are not here")
@pytest.mark.parametrize(("source", "name"), [("listing", "mini_shop"), ("detail", "detail"), ("options", "option")])
def test_real_bodies_show_no_drift(source: str, name: str) -> None:
    body = orjson.loads((SAMPLES / f"{name}.json").read_bytes())
    assert drift_of(source, body) == []
    assert examine(source, body, closely=True) == ()


@pytest.mark.parametrize(
    ("source", "body", "expected"),
    [
        ("listing", listing(listing_item(badge="NEW")), ("listing.items.badge", NEW, "", "text", '"NEW"')),
        ("listing", listing(listing_item(), total=1), ("listing.total", NEW, "", "number", "1")),
        (
            "listing",
            listing(without(listing_item(), "price")),
            ("listing.items.price", MISSING, "number or text", "", ""),
        ),
        (
            "listing",
            listing(listing_item(price=None)),
            ("listing.items.price", RETYPED, "number or text", "null", "null"),
        ),
        (
            "listing",
            listing(listing_item(), listing_item(itemNo=2, price="문의")),
            ("listing.items.price", RETYPED, "number or text", "unreadable", '"문의"'),
        ),
        (
            "listing",
            listing(listing_item(), listing_item(itemNo=2, imageUrlList=[1])),
            ("listing.items.imageUrlList", RETYPED, "list", "unreadable", "[1]"),
        ),
        (
            "listing",
            listing(listing_item(tagList=[{"title": "쿠폰", "code": {"a": [1, [2]]}}])),
            ("listing.items.tagList.code", NEW, "", "object", '{"a": [1, …]}'),
        ),
        (
            "listing",
            listing(listing_item(), listing_item(itemNo=2, tagList=["쿠폰"])),
            ("listing.items.tagList", RETYPED, "object", "text", '"쿠폰"'),
        ),
        ("listing", listing(7, listing_item()), ("listing.items", RETYPED, "object", "number", "7")),
        (
            "listing",
            listing(listing_item(), groupResult=[]),
            ("listing.groupResult", RETYPED, "null or object", "list", "[]"),
        ),
        (
            "detail",
            detail(ProductInfoModule=info(coupon={"name": "첫구매", "rate": 5})),
            ("detail.ProductInfoModule.coupon", NEW, "", "object", '{"name": "첫구매", "rate": 5}'),
        ),
        (
            "detail",
            detail(ProductInfoModule=without(info(), "stock")),
            ("detail.ProductInfoModule.stock", MISSING, "number or text", "", ""),
        ),
        (
            "detail",
            detail(ProductInfoModule=info(stock={"total": 3})),
            ("detail.ProductInfoModule.stock", RETYPED, "number or text", "object", '{"total": 3}'),
        ),
        (
            "detail",
            detail(ProductInfoModule=info(isSoldOut=0)),
            ("detail.ProductInfoModule.isSoldOut", RETYPED, "boolean or text", "number", "0"),
        ),
        ("detail", detail(ReviewModule={"score": 4}), ("detail.ReviewModule", NEW, "", "object", '{"score": 4}')),
        ("detail", detail(ShippingModule=None), ("detail.ShippingModule", MISSING, "object", "", "")),
        ("detail", detail(ProductInfoModule=None), ("detail.ProductInfoModule", MISSING, "object", "", "")),
        (
            "detail",
            detail(ShippingModule={"title": "배송정보", "items": []}),
            ("detail.ShippingModule.items", MISSING, "an entry", "", ""),
        ),
        (
            "detail",
            detail(ProductDetailInfoModule=[{"originCountry": "케냐", "more": [1]}]),
            ("detail.ProductDetailInfoModule", RETYPED, "object", "list", '[{"originCountry": "케냐", "more": …}]'),
        ),
        (
            "detail",
            detail(ShippingModule=shipping(averageDeliveryDay="2일")),
            ("detail.ShippingModule.items.data.averageDeliveryDay", RETYPED, "null or object", "text", '"2일"'),
        ),
        ("options", [option(barcode="880")], ("options.barcode", NEW, "", "text", '"880"')),
        ("options", [option(), without(option(optionNo=2), "size")], ("options.size", MISSING, "null or text", "", "")),
        ("options", [option(stock=[1])], ("options.stock", RETYPED, "number or text", "list", "[1]")),
    ],
    ids=lambda value: f"{value[1]} {value[0]}" if isinstance(value, tuple) else "",
)
def test_a_field_that_changed_is_named_with_what_it_was_and_what_it_is(
    source: str, body: Any, expected: tuple[str, ...]
) -> None:
    [seen] = drift_of(source, body)
    assert (seen.path, seen.kind, seen.expected, seen.observed, seen.sample) == expected


def test_a_module_with_a_field_beside_its_data_and_one_without_a_type_are_named() -> None:
    body = detail()
    body["moduleList"][1]["version"] = 2
    body["moduleList"].append({"data": {}})
    assert [(seen.path, seen.kind) for seen in drift_of("detail", body)] == [
        ("detail.ProductInfoModule.version", NEW),
        ("detail.moduleList.type", MISSING),
    ]


@pytest.mark.parametrize(
    ("source", "body"),
    [
        *((source, body) for source in PARSERS for body in (None, 7, "점검 중", {"message": "점검 중"}, [])),
        ("options", [{"message": "점검 중"}]),
        ("options", []),
        ("listing", listing()),
        ("detail", detail(ProductInfoModule=info(smallCategory=None, smallCategoryCode="", stock="3"))),
        ("detail", detail(ProductInfoModule=info(smallCategory="미니백", smallCategoryCode=12))),
        ("detail", detail(VerticalMargin=[{"anything": 1}])),
        ("detail", detail(ShippingModule=shipping(bundleDeliverySearchUrl="https://m.example/search?bundle=1"))),
        ("detail", detail(ShippingModule=shipping(bundleDeliverySearchUrl=None))),
        ("options", [option(color=None, stock="1,000")]),
    ],
)
def test_a_notice_instead_of_a_body_and_what_may_vary_are_no_drift(source: str, body: Any) -> None:
    assert drift_of(source, body) == []


def test_the_simulators_bodies_show_no_drift_whatever_the_noise() -> None:
    products = [generate(7, "dmont", ordinal) for ordinal in range(1, 13)]
    for call in range(24):
        noise = Noise(call, loud=True)
        assert examine("listing", orjson.loads(listing_body(12, products, noise)), closely=True) == ()
        for product in products:
            assert examine("detail", orjson.loads(detail_body(product, noise, "dmont")), closely=True) == ()
            assert examine("options", orjson.loads(options_body(product, noise, product.item_no)), closely=True) == ()


def test_a_field_that_every_item_of_a_page_has_is_noted_once() -> None:
    items = [listing_item(itemNo=number, badge=str(number)) for number in range(1, 50)]
    assert [seen.sample for seen in drift_of("listing", listing(*items))] == ['"1"']


def test_a_sample_never_shows_what_looks_like_a_secret() -> None:
    run = "k9" * 20
    body = detail(ProductInfoModule=info(accessToken="s3cret", note=f"Bearer {run}", more={"token": "s3cret"}))
    shown = " ".join(seen.sample for seen in drift_of("detail", body))
    assert "s3cret" not in shown
    assert run not in shown


def test_a_hostile_body_leaves_few_short_notes_and_no_memory_of_its_names() -> None:
    hostile = {f"\x00{number} ⁂.{'x' * 300}": "y" * 5000 for number in range(5000)}
    seen = drift_of("detail", detail(ProductInfoModule=info() | hostile))
    assert len(seen) == shape.MOST_DEVIATIONS
    assert all(len(one.path) <= 100 and len(one.sample) <= 200 and one.path.isprintable() for one in seen)
    assert all(one.path.startswith("detail.ProductInfoModule.") and one.path.count(".") == 2 for one in seen)


def test_names_that_differ_from_entry_to_entry_leave_no_more_notes_than_those_of_one() -> None:
    odd = [option(optionNo=number, **{f"x{number}": 1}) for number in range(1, 200)]
    assert len(drift_of("options", odd)) == shape.MOST_DEVIATIONS


def test_shapes_are_remembered_up_to_a_bound_and_only_those_of_known_names() -> None:
    known = Shape(**{f"f{number}": Field(frozenset({int}), optional=True) for number in range(12)})
    for mask in range(1, 1 << 12):
        found = {f"f{bit}": 1 for bit in range(12) if mask >> bit & 1}
        known.judge(found, (*found, *map(type, found.values())))
        known.judge(found | {"other": 1}, ("other",))
    assert len(known.judged) == shape.MOST_JUDGED
    assert ("other",) not in known.judged


def test_only_so_many_objects_of_one_body_are_looked_at() -> None:
    odd = [option(optionNo=number) for number in range(1, shape.MOST_OBJECTS + 1)]
    assert examine("options", [*odd, option(late=True)]) == ()
    assert [seen.path for seen in examine("options", [*odd[1:], option(late=True)])] == ["options.late"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
NAMES = st.sampled_from(
    [
        "count",
        "items",
        "itemNo",
        "name",
        "price",
        "tagList",
        "title",
        "moduleList",
        "type",
        "data",
        "images",
        "optionNo",
    ]
)
KINDS = st.sampled_from(["ProductInfoModule", "ShippingModule", "TabListModule", "Other"])
NEARLY = st.recursive(
    JSON | KINDS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=5), max_leaves=20
)


@settings(max_examples=300, deadline=None)
@given(source=st.sampled_from(sorted(PARSERS)), body=JSON | NEARLY, closely=st.booleans())
def test_no_json_whatever_breaks_the_examination(source: str, body: Any, closely: bool) -> None:
    seen = examine(source, orjson.loads(orjson.dumps(body)), closely=closely)
    assert len(seen) <= shape.MOST_DEVIATIONS
    assert all(one.path.startswith(source) and len(one.sample) <= 200 for one in seen)
